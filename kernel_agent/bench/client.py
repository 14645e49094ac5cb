"""The MCP client of the measuring server: started as a child over stdio, or reached by its address."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from mcp import Client, MCPError, stdio_client
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, TextContent, TextResourceContents
from pydantic import SecretStr, TypeAdapter, ValidationError

from kernel_agent.bench import profiles
from kernel_agent.bench.environment import Environment
from kernel_agent.bench.transport import Address, command, is_address
from kernel_agent.errors import KernelAgentError, ProblemError, ServerError, Unavailable, Unprofiled, UsageError
from kernel_agent.run.journal import LOG
from kernel_agent.run.types import Description, Evaluation, ModuleCheck, Problem, Profile, Status

if TYPE_CHECKING:
    from mcp.types import CallToolResult

START_S = 120.0
"""Seconds a server may take to answer for the first time."""

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
VERIFY_S = 600.0
"""Seconds that the server has to try a file by itself; torch.compile and a build with torch's headers are in it."""
PROFILED_AT_ONCE, PROFILE_S = 8, 300.0
"""Candidates that one call may hold, and seconds that the server has for a run of its profiler."""

T = TypeVar("T")
Say = Callable[[str], None]


class BenchClient:
    """An open connection to the server at `path`, used as an async context manager.

    A server that dies is started once more and the calls in flight are made again; the second death is a ServerError.
    `token` is for a server at an address.
    Its stderr goes to server.log in `directory`. Leaving the context ends the child within seconds.
    """

    def __init__(
        self,
        path: str,
        directory: Path,
        timeout_s: float = 120.0,
        notice: Say | None = None,
        token: SecretStr | None = None,
    ) -> None:
        self._path, self._directory, self._timeout_s = path, directory, timeout_s
        self._address = Address(path, token) if is_address(path) else None
        self._notice = notice or (lambda _: None)
        self._in_flight = self._log_from = 0
        self._restarts = 1

    async def __aenter__(self) -> BenchClient:
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

    async def environment(self, probe_counters: bool = False) -> Environment:
        """What the server's machine can do; `probe_counters` also profiles a tiny kernel, which takes some seconds."""
        asked = {"probe_counters": True} if probe_counters else {}
        return understood(Environment, await self._call("check_environment", asked))

    async def describe(
        self, problem: Problem, on_progress: Say | None = None, baselines: Iterable[str] | None = None
    ) -> Description:
        """Trace the problem, count its work and time its baselines, by default all that the target has.

        Raises ProblemError where the problem itself is at fault, Unavailable where the target lacks something.
        """
        arguments: dict[str, Any] = {"problem": problem.source, "target": problem.target}
        if baselines is not None:
            arguments["baselines"] = list(baselines)
        answer = await self._call("describe_problem", arguments, on_progress, patience_s=300)
        uri = answer.get("graph_uri")
        answer["graph"] = None if uri is None else await self._resource(uri)
        uri = answer.get("contract_uri")
        answer["contract"] = None if uri is None else await self._resource(uri)
        answer["compiled"] = next((row["kernels"] for row in answer.get("baselines", ()) if row.get("kernels")), ())
        answer["baselines"] = {row["name"]: row["timing"] for row in answer.get("baselines", ())}
        description = understood(Description, answer)
        if "eager" not in description.baselines:
            raise ServerError("The measuring server did not time eager PyTorch, which everything is compared with.")
        return description

    async def evaluate(self, problem: Problem, source: str, on_progress: Say | None = None) -> Evaluation:
        """Judge a candidate: build it, check it, time it against eager PyTorch."""
        return await self._judge(problem, source, ["eager"], False, on_progress)

    async def confirm(
        self, problem: Problem, source: str, baselines: Iterable[str], on_progress: Say | None = None
    ) -> Evaluation:
        """Judge it again with new secret inputs in fresh processes, against the baselines."""
        return await self._judge(problem, source, list(baselines), True, on_progress)

    async def verdict(
        self, problem: Problem, source: str, baselines: Iterable[str], rules: str, on_progress: Say | None = None
    ) -> dict[str, Any]:
        """The server's whole answer on one candidate, as it came; `rules` are `default` or `strict`."""
        return await self._answer(problem, source, on_progress, baselines=list(baselines), rules=rules)

    async def verify(self, problem: Problem, source: str, on_progress: Say | None = None) -> tuple[ModuleCheck, ...]:
        """Try a file by itself: whether it builds, agrees with the original, and works as a module has to."""
        asked = {"source": source, "problem": problem.source, "target": problem.target, "timeout_s": VERIFY_S}
        answer = await self._call("verify_module", asked, on_progress, VERIFY_S)
        return understood(tuple[ModuleCheck, ...], answer.get("checks", ()))

    async def profile(self, problem: Problem, sources: Sequence[str], on_progress: Say | None = None) -> list[Profile]:
        """What the profiler says of each candidate, by as few starts of it as can be.

        Raises Unprofiled where the server has none for this target, or failed in it.
        """
        found: list[Profile] = []
        for start in range(0, len(sources), PROFILED_AT_ONCE):
            found += await self._profiled(problem, list(sources[start : start + PROFILED_AT_ONCE]), on_progress)
        return found

    async def _profiled(self, problem: Problem, sources: list[str], on_progress: Say | None) -> list[Profile]:
        asked = {"candidates": sources, "problem": problem.source, "target": problem.target, "timeout_s": PROFILE_S}
        try:
            answer = await self._call("profile_kernel", asked, on_progress, PROFILE_S * (len(sources) + 1))
            rows = understood(list[profiles.ProfileAnswer], answer.get("profiles", ()))
            if len(rows) != len(sources):
                raise _malformed("profile_kernel", f"{len(rows)} profiles of {len(sources)} candidates")
            return [profiles.profile(await self._whole(row)) for row in rows]
        except Unavailable as fault:
            if self._line.done() and self._line.exception():
                raise
            raise Unprofiled(str(fault)) from None  # it lives, and measures on

    async def _whole(self, row: profiles.ProfileAnswer) -> profiles.ProfileAnswer:
        """The answer with its report in full: one that is told among others is cut to what a call may hold."""
        if row.report is None or row.report.report_id is None:
            return row
        whole = await self._call("read_report", {"report": row.report.report_id})
        return replace(row, report=understood(profiles.KernelReport, whole))

    async def _judge(
        self, problem: Problem, source: str, baselines: list[str], fresh: bool, on_progress: Say | None
    ) -> Evaluation:
        answer = await self._answer(problem, source, on_progress, baselines=baselines, fresh=fresh)
        told = ("notes",) if fresh else ("notes", "leads")  # a delivered file carries code of ours that gives leads
        remarks = [str(remark) for key in told for remark in answer.get(key) or ()]
        answer["log"] = "\n".join([str(answer.get("log") or ""), *remarks]).strip()
        evaluation = understood(Evaluation, answer)
        if evaluation.status is Status.PASSED and evaluation.speedup is None:
            raise ServerError("The measuring server passed a kernel without timing it against eager PyTorch.")
        return evaluation

    async def _answer(
        self, problem: Problem, source: str, on_progress: Say | None, **more: list[str] | str | bool
    ) -> dict[str, Any]:
        asked = {"candidate": source, "problem": problem.source, "target": problem.target, "timeout_s": self._timeout_s}
        return await self._call("evaluate_kernel", asked | more, on_progress)

    async def _resource(self, uri: str) -> Any:
        client = await asyncio.shield(self._line)
        try:
            contents = (await client.read_resource(uri)).contents
            return json.loads("".join(part.text for part in contents if isinstance(part, TextResourceContents)))
        except (MCPError, ValueError) as error:
            raise ServerError(f"The measuring server's resource {uri} cannot be read: {error}.") from None

    async def _call(
        self, tool: str, arguments: dict[str, Any], on_progress: Say | None = None, patience_s: float | None = None
    ) -> dict[str, Any]:
        """Call a tool, and again on a new server where this one is lost; its structured answer."""

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            if on_progress and message:
                on_progress(message)

        self._in_flight += 1
        try:
            while True:
                line = self._line
                client = await asyncio.shield(line)
                wait = (patience_s or self._timeout_s) * (self._in_flight + 1) + 60
                try:
                    return _answer(tool, await client.call_tool(tool, arguments, wait, progress))
                except MCPError as error:
                    if error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                        why = self._refusal or error
                        raise ServerError(f"The measuring server could not take the call {tool}: {why}.") from None
                    self._lost(line, "died" if error.code == CONNECTION_CLOSED else "gave no answer")
                except (RuntimeError, ValueError) as error:  # the client checks answers against the tool's schema
                    raise _malformed(tool, error) from None
        finally:
            self._in_flight -= 1

    def _lost(self, line: asyncio.Future[Client], what: str) -> None:
        """Of all calls that saw a connection break, the first asks for a new one."""
        if line is not self._line:
            return
        self._line = asyncio.get_running_loop().create_future()
        if self._restarts:
            self._restarts -= 1
            does = "asked" if self._address else "started"
            self._notice(f"The measuring server {what}; it is {does} once more.")
        else:
            self._fail(
                f"The measuring server {what} again{self._last_words()}; resume the run, "
                "or start it again where nothing is recorded yet."
            )
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
        if self._line.done():
            self._hang_up.set()
        else:
            self._keeper.cancel()
        await asyncio.wait({self._keeper})

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            if self._address:
                client = await stack.enter_async_context(self._address.client())
            else:
                errlog = stack.enter_context((self._directory / LOG).open("a"))
                self._log_from = errlog.tell()
                client = Client(stdio_client(command(self._path), errlog))
            async with asyncio.timeout(START_S):
                await stack.enter_async_context(client)
            yield client

    @property
    def _refusal(self) -> str | None:
        return self._address.refusal if self._address else None

    def _last_words(self) -> str:
        """The last line that the server now running, or just dead, wrote to its stderr."""
        log = self._directory / LOG
        written = log.read_bytes()[self._log_from :] if log.exists() else b""
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
        raise _malformed(tool, "no structured content")
    return dict(result.structured_content)


def understood(kind: type[T], answer: Any) -> T:
    """An answer as a value of ours. Raises ServerError where it is none."""
    try:
        return TypeAdapter(kind).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _malformed(kind.__name__.lower(), f"{place}: {first['msg']}") from None


def _malformed(what: str, why: object) -> ServerError:
    return ServerError(
        f"The measuring server's answer ({what}) cannot be understood ({why}): its version may not fit this one."
    )


def _cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {START_S:g} s"
    return str(error) or type(error).__name__
