"""What the SDK leaves out of the protocol: true answers to lines and requests that cannot be used.

The SDK reads lines, parses and dispatches them; what does not parse it hands on as an exception, which it drops later.
Here that exception is answered, as JSON-RPC has it, before it gets there.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, BinaryIO, Self

import anyio
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    ProgressNotification,
    ProgressNotificationParams,
)
from pydantic import ValidationError

MOST_BYTES = 4 << 20
"""Of a line, as of a request over HTTP."""


def serve_stdio(mcp: MCPServer[Any]) -> None:
    """Answer one client until it closes stdin, or reads no more."""
    try:
        anyio.run(_serve, mcp)
    except* BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in stdout's buffer has no reader


async def _serve(mcp: MCPServer[Any]) -> None:
    lines: Any = Lines(_wire(), MOST_BYTES)  # of a file, the SDK asks for lines alone
    async with stdio_server(stdin=anyio.wrap_file(lines)) as (incoming, outgoing):
        lowlevel = mcp._lowlevel_server  # as MCPServer.run_stdio_async does; no public name leads there
        await lowlevel.run(Answered(incoming, outgoing), outgoing, lowlevel.create_initialization_options())


def _wire() -> BinaryIO:
    """What the client writes; stdin is empty from here on for what is started from this process."""
    private = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  it lives as long as the process
    return os.fdopen(private, "rb")


class Lines(io.TextIOBase):
    """The lines of a stream, without empty ones and line ends.

    A byte that is no UTF-8 stays as half a character, which no JSON holds. A line that is longer than `most` bytes is
    cut off behind that length, so that it does not parse either.
    """

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream, self._most = stream, most

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """The next line; empty at the end of the stream."""
        while line := self._stream.readline(self._most + 1):
            rest = line
            while len(rest) > self._most - 1 and not rest.endswith(b"\n"):
                rest = self._stream.readline(self._most)
            if line.strip():
                return line.rstrip().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        return ""


class Answered:
    """A stream of messages that answers what is none and passes on the rest."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    @property
    def last_context(self) -> Any:
        """The context that the last message was sent in."""
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises anyio.EndOfStream."""
        while isinstance(item := await self._incoming.receive(), Exception):
            if (answer := refusal(item, MOST_BYTES)) is not None:
                with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await self._outgoing.send(SessionMessage(answer))
        message: SessionMessage = item
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close the stream."""
        await self._incoming.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def refusal(fault: Exception, most: int) -> JSONRPCError | None:
    """The answer to a line that is no message; None to a broken reply, which nobody waits for."""
    errors = fault.errors(include_url=False) if isinstance(fault, ValidationError) else []
    given = next((error["input"] for error in errors if error["type"] == "missing" and len(error["loc"]) == 2), None)
    whole = errors[0]["input"] if errors else None
    if isinstance(whole, str) and len(whole.encode("utf-8", "surrogateescape")) > most:
        return _error(INVALID_REQUEST, f"a line holds at most {most} bytes; what is longer is not read")
    if not errors or errors[0]["type"] == "string_unicode":
        return _error(PARSE_ERROR, f"the line is not text in UTF-8{_place(whole)}")
    if errors[0]["type"] == "json_invalid":
        return _error(PARSE_ERROR, f"the line is not JSON: {errors[0]['msg'].removeprefix('Invalid JSON: ')}")
    if given is None:
        batch = ": batches are not taken, so send each message on a line of its own" if isinstance(whole, list) else ""
        return _error(INVALID_REQUEST, f"a message is a JSON object{batch}")
    if not given.keys().isdisjoint({"result", "error"}):
        return None
    first = next(error for error in errors if error["loc"][1:] != ("id",))
    reason = "is missing" if first["type"] == "missing" else f"cannot be used: {first['msg']}"
    known = given.get("id")
    identity = known if isinstance(known, int | str) and not isinstance(known, bool) else None
    return _error(INVALID_REQUEST, f"`{'.'.join(map(str, first['loc'][1:]))}` {reason}", identity)


def _place(line: object) -> str:
    """Where the first byte is that is none."""
    bad = [at for at, character in enumerate(str(line)) if "\udc80" <= character <= "\udcff"][:1]
    return f": byte 0x{ord(str(line)[bad[0]]) - 0xDC00:02x} after {bad[0]} characters" if bad else ""


def _error(code: int, message: str, identity: int | str | None = None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=identity, error=ErrorData(code=code, message=message))


async def named(ctx: ServerRequestContext[Any], call_next: CallNext) -> HandlerResult:
    """Middleware that names the parameter of a request which cannot be used; the SDK answers without a reason."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        raise MCPError(INVALID_PARAMS, f"{ctx.method}: {sentence(error, 'parameter')}", "") from error
    except MCPError as error:
        if error.code == INVALID_PARAMS and error.data == "":  # the SDK's gate; all else there raises ValidationError
            raise MCPError(INVALID_PARAMS, f"{ctx.method}: send `initialize` before any other request", "") from error
        raise


async def report(ctx: Context[Any, Any], count: int, message: str, meta: Mapping[str, Any]) -> None:
    """Send one progress notification, where the client asks for them; the SDK's own call has no room for `_meta`."""
    token = (ctx.request_context.meta or {}).get("progress_token")
    if token is None:
        return
    about: Any = dict(meta)
    params = ProgressNotificationParams(progress_token=token, progress=count, message=message, _meta=about)
    session = ctx.request_context.session
    await session.send_notification(ProgressNotification(params=params), related_request_id=ctx.request_id)


def instead(given: str, known: Iterable[str]) -> str:
    """The name that is nearest to one that is not known, and all there are."""
    nearest = get_close_matches(given, known := list(known), 1)
    meant = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"; {meant}there are: {', '.join(known)}"


def sentence(error: ValidationError, what: str = "argument") -> str:
    """The first fault in words; what was given is cut short."""
    first: Mapping[str, Any] = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or f"the {what}s"
    if first["type"] == "missing":
        return f"the {what} {place!r} is missing"
    given = repr(first["input"])
    shown = given if len(given) <= 80 else f"{given[:80]}..."
    return f"the {what} {place!r} cannot be used: {first['msg'][:1].lower()}{first['msg'][1:]}, not {shown}"
