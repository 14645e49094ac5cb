"""One forked process as the server sees it: ask it, let it rest, close it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from ncu_server.errors import Code, Refusal
from ncu_server.sandbox import limits
from ncu_server.sandbox.crash import innermost
from ncu_server.sandbox.framing import Message, receive_async, send_async
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.sandbox.verb import Verb

LOG_TAIL = 4000
STACK_TAIL = 4 * LOG_TAIL  # a native stack, of which little is told, is long
REFUSED_MEMORY = "MemoryError"  # what ncu_server.worker.roles calls it, whoever was refused
T = TypeVar("T")


class Owner(Protocol):
    """Who forked a child: the fork server."""

    def kill(self, number: int) -> None: ...

    def clear(self, *places: Path) -> None: ...


class ChildError(Exception):
    """A child did not answer as asked. `child` says which, and so whose fault it is."""

    lacked_memory = False  # the host's

    def __init__(self, child: Child, words: str) -> None:
        super().__init__(_printable(words))
        self.child = child

    @property
    def sentence(self) -> str:
        """Its first line, without the output or the trace that may follow."""
        return str(self).split("\n", 1)[0]


class ChildFault(ChildError):  # noqa: N818
    """The code inside a child raised: `kind` is the exception's class, `text` its message, `trace` where."""

    def __init__(self, child: Child, kind: str, text: str, trace: str) -> None:
        super().__init__(child, f"{kind}: {text}")
        self.kind, self.text, self.trace = _printable(kind), _printable(text), _printable(trace)
        self.lacked_memory = self.kind == REFUSED_MEMORY


class ChildDied(ChildError):  # noqa: N818
    """A child ended without an answer, or with one that is none; the text says how, with the end of its output."""


class ChildStarved(ChildDied):
    """A child was ended because memory ran out, that of its bound or the machine's; `memory_bytes` is what it had."""

    lacked_memory = True

    def __init__(self, child: Child, words: str, memory_bytes: int) -> None:
        super().__init__(child, words)
        self.memory_bytes = memory_bytes


class ChildTimeout(ChildError, TimeoutError):  # noqa: N818
    """A child did not answer in time and was killed."""


class Lost(Refusal):
    """A process of ours has ended: no candidate's fault, and worth a second try. `how`: in words, where known."""

    def __init__(self, how: str = "") -> None:
        words = ": ".join(filter(None, ["the worker process has ended", how]))
        super().__init__(Code.INTERNAL, words, "call again to start a new one")


@dataclass(frozen=True, slots=True)
class End:
    """How a child ended: its exit code, and what it used too much of where that was why."""

    code: int
    excess: limits.Excess | None = None

    @staticmethod
    def read(message: Mapping[str, Any]) -> End:
        """Off the fork server's message."""
        excess = message["excess"]
        return End(message["code"], limits.Excess(**excess) if excess else None)


def _handle(pid: int) -> int | None:
    """A descriptor that stands for the process whatever becomes of its number; None where there is none to be had."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


@functools.cache
def _adapter(answer: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer)


def _first(fault: ValidationError) -> str:
    error = fault.errors(include_url=False)[0]
    return f"{'.'.join(str(p) for p in error['loc'])} {error['msg']}".strip()


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


class Child:
    """One forked process: ask it, then close it. Whoever asks decides whose fault a fault is."""

    def __init__(
        self, fork_server: Owner, number: int, pid: int, sock: socket.socket, directory: Path, walls: str, gives: bool
    ) -> None:
        """`gives`: it is of ours, and may put device memory in place of the memory that it is to fill."""
        self._fork_server, self._sock, self._number = fork_server, sock, number
        self.pid, self.directory = pid, directory
        self.walls, self._gives = walls, gives
        self.closed = self._released = False
        self.abandoned = False  # whether it was closed because a call of it was given up, which is no fault of its own
        self._handle = _handle(pid)
        self.scrap: list[Path] = []
        self.ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    async def ask(self, verb: Verb[T], memories: Sequence[Shared] = (), timeout_s: float | None = None) -> T:
        """Run `verb` in the child, beside these memories, and return what it answers, of the form that the verb says.

        Raises ChildFault for an exception inside, ChildDied where the process is gone or its answer has another form,
        ChildStarved where it is gone because memory ran out, ChildTimeout after `timeout_s` (the child is killed then),
        Lost where the fork server has gone.
        """
        self._signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._exchange(verb.message(), memories)
        except TimeoutError:
            self.close()
            raise ChildTimeout(self, f"no answer within {timeout_s} s") from None
        except asyncio.CancelledError:
            self.abandoned = True
            self.close()
            raise
        match answer:
            case {"value": value, **rest} if not rest:
                try:
                    answered: T = _adapter(verb.answer()).validate_python(value, strict=True)
                except ValidationError as fault:
                    self.close()
                    raise ChildDied(self, f"the process answered nonsense: {_first(fault)}") from None
                return answered
            case {"fault": {"kind": str(kind), "text": str(text), "trace": str(trace)}}:
                raise ChildFault(self, kind, text, trace)
            case None:
                raise await self._death()
        self.close()
        raise ChildDied(self, "the process sent an answer that is none")

    def rest(self) -> None:
        """Stop it with all its threads until it is asked again, so that nothing of it runs while others are timed."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if self._handle is not None and not self.closed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    async def _exchange(self, message: Message, memories: Sequence[Shared]) -> object:
        """The answer, None where the process has gone, and a text where what came is no message."""
        fds: list[int] = []
        assert all(memory.fd >= 0 for memory in memories), "what is closed is given to nobody"
        try:
            await send_async(self._sock, message, [memory.fd for memory in memories])
            answer = await receive_async(self._sock, fds if self._gives else None)
            if answer and self._gives:
                for place, room in answer.pop("given", []):
                    memories[place].replace(fds.pop(0), room)
            return answer
        except OSError:
            return None
        except ValueError:
            return "no JSON"
        finally:
            for fd in fds:
                os.close(fd)

    async def _death(self) -> ChildDied:
        self.closed = True
        try:
            async with asyncio.timeout(2):
                end = await asyncio.shield(self.ended)
        except TimeoutError:
            self.close()
            return ChildDied(self, f"the process closed its channel and did not end\n{self.output()}".strip())
        if excess := end.excess:
            words = f"the process was killed: it {excess.words}\n{self.output()}".strip()
            taken = excess.memory_bytes
            return ChildDied(self, words) if taken is None else ChildStarved(self, words, taken)
        code = end.code
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return ChildDied(self, f"the process {how}\n{self.output()}".strip())

    def output(self) -> str:
        """The end of what the child printed; of a native stack no more than its innermost frames."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - STACK_TAIL))
                return innermost(log.read(STACK_TAIL).decode(errors="replace"))[-LOG_TAIL:]
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")

    def close(self) -> None:
        """Kill the child and everything it started; its directory, its log and `scrap` go once it has ended."""
        self.closed = True
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._sock.close()
        if not self._released:
            self._released = True
            self._fork_server.kill(self._number)
            self.ended.add_done_callback(lambda _: self._fork_server.clear(self.directory, *self.scrap))
