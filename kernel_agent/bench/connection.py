"""An open connection to the measuring server, which outlives the server's death."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mcp import Client, MCPError, stdio_client
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, ProgressNotification, TextContent, TextResourceContents

from kernel_agent.bench.answers import malformed
from kernel_agent.bench.transport import Address, Endpoint, command, is_address
from kernel_agent.errors import KernelAgentError, ProblemError, ServerError, Unavailable, Unprofiled, UsageError
from kernel_agent.interfaces import OnNotice, OnProgress, Stage, ignore

if TYPE_CHECKING:
    from mcp.client.session import IncomingMessage
    from mcp.types import CallToolResult

START_S = 120.0
"""Seconds a server may take to answer for the first time."""

AHEAD, AT, WHOLE = "ncu-server/ahead", "ncu-server/stage", "ncu-server/whole"
"""Where in `_meta` a notification says how many are ahead of a call and what it is at, and a call that nothing of a
report be cut."""

REFUSAL = re.compile(r"(?:Error executing tool \w+: )?([A-Z_]+): (.+)", re.DOTALL)
REFUSALS: dict[str, type[KernelAgentError]] = {
    "BAD_PROBLEM": ProblemError,
    "BAD_ARGUMENT": UsageError,
    "UNKNOWN_TARGET": UsageError,
    "NO_DEVICE": Unavailable,
    "NO_COMPILER": Unavailable,
    "UNSUPPORTED_VERSION": Unavailable,
    "NO_ROOM": Unavailable,
    "NO_PROFILER": Unprofiled,
    "COUNTERS_DENIED": Unprofiled,
    "COUNTERS_BUSY": Unprofiled,
    "LOCKED": Unprofiled,
    "NCU_FAILED": Unprofiled,
    "NO_KERNEL_MATCH": Unprofiled,
    "BAD_REPORT": Unprofiled,
    "UNKNOWN_REPORT": Unprofiled,
    "READER_TOO_OLD": Unprofiled,
    "NO_READER": Unprofiled,
    "TOOK_TOO_LONG": Unprofiled,
}


class Connection:
    """An open connection to a server, used as an async context manager.

    A server that dies is started once more and the calls in flight are made again, each as often as there are
    `restarts`; then the call is a ServerError. None is started any more where servers die without a single answer.
    Their stderr goes to a file in `directory`. Leaving the context ends the child within seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Path,
        timeout_s: float,
        on_notice: OnNotice = ignore,
        restarts: int = 1,
    ) -> None:
        self._endpoint, self._path, self._timeout_s = endpoint, endpoint.path, timeout_s
        self._log = directory / endpoint.log
        self._address = Address(endpoint.path, endpoint.token) if is_address(endpoint.path) else None
        self._notice = on_notice
        self._in_flight_s = 0.0
        self._log_from = 0
        self._restarts, self._unanswered = restarts, 0
        self._tokens = itertools.count(1)
        self._listeners: dict[object, OnProgress] = {}

    async def __aenter__(self) -> Self:
        self._line: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._hang_up = asyncio.Event()
        self._keeper = asyncio.create_task(self._keep())
        self._keeper.add_done_callback(self._kept)
        try:
            await asyncio.shield(self._line)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    @property
    def is_lost(self) -> bool:
        """Whether no server will answer any more."""
        return self._line.done() and self._line.exception() is not None

    async def resource(self, uri: str | None) -> Any:
        """The JSON of a resource; None where there is none. Raises ServerError where it cannot be read."""
        while uri is not None:
            line = self._line
            client = await asyncio.shield(line)
            try:
                contents = (await client.read_resource(uri)).contents
                return json.loads("".join(part.text for part in contents if isinstance(part, TextResourceContents)))
            except (MCPError, ValueError) as error:
                if not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
                    raise ServerError(f"The measuring server's resource {uri} cannot be read: {error}.") from None
                self._lost(line, "died")
        return None

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: OnProgress = ignore,
        patience_s: float | None = None,
        whole: bool = False,
    ) -> dict[str, Any]:
        """Call a tool, and again on a new server where this one is lost; its structured answer, `whole` or cut.

        It is given `patience_s` (by default what judging a kernel may take), and as much as all calls under way have.
        """
        token, patience = f"call-{next(self._tokens)}", patience_s or self._timeout_s
        meta: Any = {"progress_token": token} | ({WHOLE: True} if whole else {})
        self._listeners[token] = on_progress
        self._in_flight_s += patience
        lost = 0
        try:
            while True:
                line = self._line
                client = await asyncio.shield(line)
                wait = self._in_flight_s + patience + 60
                try:
                    answer = await client.call_tool(tool, arguments, wait, meta=meta)
                    self._unanswered = 0
                    return _answer(tool, answer)
                except MCPError as error:
                    if error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                        why = self._refusal or error
                        raise ServerError(f"The measuring server could not take the call {tool}: {why}.") from None
                    what = "died" if error.code == CONNECTION_CLOSED else "gave no answer"
                    self._lost(line, what)
                    lost += 1
                    if lost > self._restarts and not self.is_lost:
                        raise ServerError(self._again(what)) from None
                except (RuntimeError, ValueError) as error:  # the client checks answers against the tool's schema
                    raise malformed(tool, error) from None
        finally:
            self._in_flight_s -= patience
            del self._listeners[token]

    async def _heard(self, message: IncomingMessage) -> None:
        """Tell whoever made a call how it gets on. The SDK's own callback for progress leaves out what `_meta` says."""
        if not isinstance(message, ProgressNotification) or not message.params.message:
            return
        meta = message.params.meta or {}
        ahead, at = meta.get(AHEAD), meta.get(AT)
        words = message.params.message
        stage = Stage(words, ahead if isinstance(ahead, int) else None, at if isinstance(at, str) else None)
        self._listeners.get(message.params.progress_token, ignore)(stage)

    def _lost(self, line: asyncio.Future[Client], what: str) -> None:
        """Of all calls that saw a connection break, the first asks for a new one."""
        if line is not self._line:
            return
        self._line = asyncio.get_running_loop().create_future()
        self._unanswered += 1
        if self._unanswered <= 2 * self._restarts:
            does = "asked" if self._address else "started"
            self._notice(f"The measuring server {what}; it is {does} once more.")
        else:
            self._fail(self._again(what) if self._restarts else f"it {what}{self._last_words()}.")
        self._hang_up.set()

    async def _keep(self) -> None:
        """Hold the connection open in one task, as the client asks; open another where `_lost` asks for one."""
        while not self._line.done():
            line, self._hang_up = self._line, asyncio.Event()
            try:
                async with self._open() as client:
                    line.set_result(client)
                    await self._hang_up.wait()
            except ServerError as error:
                self._fail(str(error))
            except (OSError, MCPError, TimeoutError, BaseExceptionGroup) as error:
                if not line.done():
                    does = "answer" if self._address else "start"
                    why = self._refusal or f"{_cause(error)}{self._last_words()}"
                    self._fail(f"The measuring server `{self._path}` does not {does}: {why}.")

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        """Nobody waits for a connection that its keeper no longer opens."""
        fault = None if keeper.cancelled() else keeper.exception()
        if not self._line.done():
            why = fault or "it was closed"
            self._fail(f"The connection to the measuring server ended ({why}); start or resume the run again.")

    def _fail(self, sentence: str) -> None:
        self._line.set_exception(ServerError(sentence))
        self._line.exception()  # known: nobody may be waiting for it

    async def _close(self) -> None:
        self._restarts = 0  # whoever still calls is not worth another server
        if self._line.done():
            self._hang_up.set()
        else:
            self._keeper.cancel()
        await asyncio.wait({self._keeper})

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            if self._address:
                client = await stack.enter_async_context(self._address.client(self._heard))
            else:
                errlog = stack.enter_context(self._log.open("a"))
                self._log_from = errlog.tell()
                child = stdio_client(command(self._path, self._endpoint.variables), errlog)
                client = Client(child, message_handler=self._heard)
            async with asyncio.timeout(START_S):
                await stack.enter_async_context(client)
            yield client

    def _again(self, what: str) -> str:
        return (
            f"The measuring server {what} again{self._last_words()}; resume the run, "
            "or start it again where nothing is recorded yet."
        )

    @property
    def _refusal(self) -> str | None:
        return self._address.refusal if self._address else None

    def _last_words(self) -> str:
        """The last line that the server now running, or just dead, wrote to its stderr."""
        written = self._log.read_bytes()[self._log_from :] if self._log.exists() else b""
        lines = written.decode(errors="replace").strip().splitlines()
        return f"; its last words are `{lines[-1].strip()}`" if lines else ""


def _answer(tool: str, result: CallToolResult) -> dict[str, Any]:
    """The structured answer of a tool, or the exception that its refusal stands for."""
    if result.is_error:
        text = " ".join(part.text for part in result.content if isinstance(part, TextContent))
        refusal = REFUSAL.fullmatch(text.strip())
        code, sentence = refusal.groups() if refusal else ("INTERNAL", text)
        if code in REFUSALS:
            raise REFUSALS[code](sentence)
        raise ServerError(f"The measuring server failed in {tool}: {sentence}")
    if not isinstance(result.structured_content, dict):
        raise malformed(tool, "no structured content")
    return dict(result.structured_content)


def _cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {START_S:g} s"
    return str(error) or type(error).__name__
