"""A warm process with torch imported that forks one child a job: 0.3 s to a working child instead of 3-6 s.

The fork server only imports. A child of a process that ever ran a parallel tensor operation hangs, and a CUDA context
does not survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ncu_server import places
from ncu_server.errors import Code, Refusal
from ncu_server.sandbox.child import Child, End, Lost
from ncu_server.sandbox.enter import scrubbed, search_path
from ncu_server.sandbox.framing import receive_async, send, send_async
from ncu_server.sandbox.policy import FILE_BYTES, Kind, Policy

BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ncu_server.worker import forkserver
forkserver.main(int(sys.argv[2]))
"""
START_TIMEOUT_S = 120.0
CLEAR_TIMEOUT_S = 10.0
ENDED_S = 2.0
KINDS: dict[str, Kind] = {"builder": "build", "candidate": "run"}
GIVING = {"reference", "judge"}
"""Roles of ours that run no candidate: they may give device memory."""


def _remove(places: Sequence[Path]) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.with_suffix(".log").unlink()


def _abandoned(spawning: asyncio.Future[Child]) -> None:
    if not spawning.cancelled() and spawning.exception() is None:
        spawning.result().close()


@dataclass(frozen=True, slots=True)
class Fork:
    """A child that is being forked: our end of its channel, what it will write, and what goes with it."""

    role: str
    ours: socket.socket
    directory: Path
    scrap: list[Path]
    child: asyncio.Future[Child] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ForkServer:
    """Starts at the first spawn; dies with the server, and its children with it. `notes`: what it had to do without."""

    def __init__(self, work: Path, environment: Mapping[str, str], device: str) -> None:
        self._work, self._environment, self._device = work, dict(environment), device
        self._numbers = itertools.count(1)
        self._forks: dict[int, Fork] = {}
        self._children: dict[int, Child] = {}
        self._spawning: set[asyncio.Future[Child]] = set()
        self._clearing: set[asyncio.Future[None]] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.notes: list[str] = []

    async def spawn(
        self, role: str, readable: Sequence[str] = (), writable: Sequence[str] = (), file_bytes: int = FILE_BYTES
    ) -> Child:
        """Fork a child that serves `role` (see ncu_server.worker.roles) behind the walls of its kind.

        Beside its own directory it reaches `readable` and `writable`, which go with it unless its `scrap` is emptied;
        no file of its may grow over `file_bytes`. A fork server that turns out to be dying is replaced, and a child
        that nobody waits for any more ended. Raises Refusal INTERNAL where none can start, and
        UNSUPPORTED_VERSION where torch or Triton lacks what it needs.
        """
        walls = Policy(KINDS.get(role, "light"), self._device, tuple(readable), tuple(writable), file_bytes)
        spawning = asyncio.ensure_future(self._spawned(role, walls))
        self._spawning.add(spawning)
        spawning.add_done_callback(self._spawning.discard)
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            spawning.add_done_callback(_abandoned)
            raise

    async def _spawned(self, role: str, walls: Policy) -> Child:
        dying = self._process
        try:
            return await self._fork(role, walls)
        except Lost:
            if self._process is dying:  # another spawn may have replaced it meanwhile
                self.close()
            return await self._fork(role, walls)

    async def _fork(self, role: str, walls: Policy) -> Child:
        async with self._starting:
            if self._process is None or self._process.poll() is not None:
                await self._start()
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        fork = Fork(role, ours, self._work / f"{role}-{number}", [Path(place) for place in walls.writable])
        self._forks[number] = fork
        message = {"fork": number, "role": role, "directory": str(fork.directory), "walls": asdict(walls)}
        try:
            await send_async(self._live(), message, [theirs.fileno()])
            return await fork.child
        except OSError as fault:  # its end of the channel is closed already
            raise Lost from fault
        finally:
            theirs.close()
            self._forks.pop(number, None)

    def clear(self, *places: Path) -> None:
        """Remove directories, and the logs beside them, that ended children wrote."""
        removal = asyncio.ensure_future(asyncio.to_thread(_remove, places))
        self._clearing.add(removal)
        removal.add_done_callback(self._clearing.discard)

    async def cleared(self) -> None:
        """Wait until all closed children have ended and what they wrote is gone, but not for ever."""
        steps: tuple[Callable[[], Iterable[asyncio.Future[Any]]], ...] = (
            lambda: self._spawning,
            lambda: [c.ended for c in self._children.values() if c.closed],
            lambda: self._clearing,
        )
        for pending in steps:
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0)), *pending()], timeout=CLEAR_TIMEOUT_S)

    def kill(self, number: int) -> None:
        """Kill one child's whole process group; nothing happens where it has ended."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                send(self._control, {"kill": number})

    async def _start(self) -> None:
        self.close()
        ours, theirs = socket.socketpair()
        names = places.aliases(self._environment[places.ALIASES]) if places.ALIASES in self._environment else {}
        path = json.dumps([places.renamed(p, names) for p in search_path()])
        self._process = subprocess.Popen(
            [places.renamed(sys.executable, names), "-P", "-s", "-c", BOOTSTRAP, path, str(theirs.fileno())],
            env=scrubbed(os.environ) | self._environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        ours.setblocking(False)
        self._control, timed_out = ours, False
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                ready = await receive_async(ours)
        except TimeoutError:
            ready, timed_out = None, True
        if ready is None:
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # its end of the channel closes a moment before it ends
                self._process.wait(timeout=0 if timed_out else ENDED_S)
            code = self._process.poll()
            self.close()
            how = (
                f"ended with exit code {code}" if code is not None else f"was not ready within {START_TIMEOUT_S:.0f} s"
            )
            raise Refusal(
                Code.INTERNAL, f"the worker process that imports torch {how}", "try `python -c 'import torch'`"
            )
        if refused := ready.get("refused"):
            self.close()
            raise Refusal(Code.UNSUPPORTED_VERSION, *refused)
        self.notes = ready["notes"]
        self._reader = asyncio.create_task(self._listen(ours))

    def _live(self) -> socket.socket:
        if self._control is None:
            raise Lost
        return self._control

    async def _listen(self, control: socket.socket) -> None:
        while (message := await receive_async(control)) is not None:
            if "forked" in message:
                self._introduce(message["forked"], message["pid"], message["walls"])
            elif child := self._children.pop(message["ended"], None):
                child.ended.set_result(End.read(message))
        self._give_up()

    def _give_up(self) -> None:
        """Tell whoever waits for a fork or for a child's end that both are lost."""
        for child in self._children.values():
            child.closed = True
        forks, children = self._forks.values(), self._children.values()
        pending: list[asyncio.Future[Any]] = [*(f.child for f in forks), *(c.ended for c in children)]
        for waiting in pending:
            if not waiting.done():
                waiting.set_exception(Lost())
                waiting.exception()  # seen: nobody has to ask

    def _introduce(self, number: int, pid: int, walls: str) -> None:
        """At once: the next message may be that it has ended."""
        fork = self._forks.get(number)
        if fork is None or fork.child.done():
            self.kill(number)
        else:
            gives = fork.role in GIVING
            child = self._children[number] = Child(self, number, pid, fork.ours, fork.directory, walls, gives)
            child.scrap = fork.scrap
            fork.child.set_result(child)

    def close(self) -> None:
        """End the fork server; its children are killed with it."""
        if self._reader is not None:
            self._reader.cancel()
            if self._control is not None:  # else the next channel, of the same number, would be taken for this one
                self._reader.get_loop().remove_reader(self._control)
            self._reader = None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._give_up()
        self._children.clear()
