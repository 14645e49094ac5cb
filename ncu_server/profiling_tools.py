"""The tools and resources of profiling, for the MCP shell. No logic lives here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import ToolAnnotations
from pydantic import Field

from ncu_server import compiling, contrast, ncu, profile, profiles, reports, telling
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Report
from ncu_server.rig import Rig
from ncu_server.store import Store

T = TypeVar("T")
Served = Callable[[Context[Any, Any], float | None], AbstractAsyncContextManager[Report]]
ReportId = Annotated[str, Field(description="id that profile_kernel or read_report gave")]
Kernel = Annotated[int | None, Field(ge=0, description="place of the launch in the report; by default the longest")]
TimeoutS = Annotated[float, Field(gt=0, le=3600, description="limit for the call in seconds")]
RUNS_CODE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def _rig(ctx: Context[Any, Any]) -> Rig:
    rig: Rig = ctx.request_context.lifespan_context.rig
    return rig


def _kept(ctx: Context[Any, Any]) -> Store:
    store: Store = ctx.request_context.lifespan_context.kept
    return store


def add(mcp: MCPServer[Any], served: Served) -> None:
    """Add them; `served` reports progress and turns faults into tool errors."""
    _add_profiling(mcp, served)
    _add_reading(mcp, served)
    _add_comparing(mcp, served)
    _add_resources(mcp)


def _add_profiling(mcp: MCPServer[Any], served: Served) -> None:
    @mcp.tool(title="Profile kernels", annotations=RUNS_CODE)
    async def profile_kernel(
        ctx: Context[Any, Any],
        candidates: Annotated[
            list[str] | None,
            Field(description="sources as for evaluate_kernel, or build_ids, one to eight; one start serves all"),
        ] = None,
        problem: Annotated[str | None, Field(description="PyTorch source that the candidates are for")] = None,
        target: Annotated[str, Field(description="`cuda` or `triton`")] = "cuda",
        command: Annotated[
            list[str] | None, Field(description="instead of candidates: a program and its arguments; no shell reads it")
        ] = None,
        folder: Annotated[str | None, Field(description="where `command` runs; by default an empty folder")] = None,
        detail: Annotated[
            str, Field(description="`basic` (fast), `standard`, `full`, or names of ncu's sections with commas")
        ] = "standard",
        kernel_regex: Annotated[str | None, Field(description="profile only kernels whose name it finds")] = None,
        launch_skip: Annotated[int, Field(ge=0, description="matching launches to pass over first")] = 0,
        launch_count: Annotated[int, Field(ge=1, le=100, description="launches to profile for each candidate")] = 16,
        clock: Annotated[
            Literal["base", "none"], Field(description="`base` fixes the clock: comparable, and slower than in use")
        ] = "base",
        arch: Annotated[
            str | None, Field(description="`sm_90` or another: where there is no GPU, what to compile for and look at")
        ] = None,
        timeout_s: Annotated[float, Field(gt=0, le=3600, description="limit for each run of ncu and each build")] = 300,
    ) -> profiles.ProfileResult:
        """Say why kernels take as long as they do: counters of each launch, what bounds it, which line is to blame."""
        selection = ncu.Selection(detail, kernel_regex, launch_skip, launch_count, clock)
        async with served(ctx, None) as report:
            if command:
                return await profile.command(_rig(ctx), command, folder, selection, timeout_s, report)
            if not candidates or problem is None:
                raise Refusal(Code.BAD_ARGUMENT, "give candidates and their problem, or a command")
            sources = tuple(compiling.candidate_of(_kept(ctx), given) for given in candidates)
            request = profile.Request(sources, problem, target, selection, timeout_s, arch)
            return await profile.profile(_rig(ctx), request, report)


def _add_reading(mcp: MCPServer[Any], served: Served) -> None:
    @mcp.tool(title="Read a report", annotations=READ_ONLY)
    async def read_report(
        ctx: Context[Any, Any],
        report: Annotated[str, Field(description="id of a kept report, or path of a .ncu-rep file on this machine")],
        kernel: Kernel = None,
        timeout_s: TimeoutS = 240,
    ) -> profiles.Report:
        """Say what a Nsight Compute report holds: bound, troubles with their line, stalls, rules, hot lines. No GPU."""
        async with served(ctx, timeout_s):
            store = _rig(ctx).reports
            if reports.is_id(report):
                entry = store.get(report)
            else:
                entry = await reports.kept(store, Path(report).expanduser(), reports.About())
            found = await asyncio.to_thread(telling.told, entry, kernel)
            return telling.fitted(found, [found.digest] if found.digest else [])

    @mcp.tool(title="Query counters", annotations=READ_ONLY)
    async def query_metrics(
        ctx: Context[Any, Any],
        report_id: ReportId,
        pattern: Annotated[str, Field(description="part of a name, or a shell pattern: `l1tex__*global_op_ld*`")],
        kernel: Kernel = None,
        limit: Annotated[int, Field(ge=1, le=telling.PAGE, description="most counters to give")] = telling.PAGE,
        cursor: Annotated[int, Field(ge=0, description="where to go on, from the result before")] = 0,
        timeout_s: TimeoutS = 60,
    ) -> profiles.MetricsResult:
        """The counters of one launch by name, as ncu names them: for what a digest does not say."""
        async with served(ctx, timeout_s):
            entry = _rig(ctx).reports.get(report_id)
            return await asyncio.to_thread(telling.counters, entry, kernel, pattern, limit, cursor)


def _add_comparing(mcp: MCPServer[Any], served: Served) -> None:
    @mcp.tool(title="Compare two reports", annotations=READ_ONLY)
    async def compare_reports(
        ctx: Context[Any, Any],
        before: ReportId,
        after: ReportId,
        kernel_before: Kernel = None,
        kernel_after: Kernel = None,
        timeout_s: TimeoutS = 60,
    ) -> profiles.ComparisonResult:
        """What changed between two profiled launches, in plain words first: time, bound, troubles cured and new."""
        async with served(ctx, timeout_s):
            launches = []
            for identity, kernel in ((before, kernel_before), (after, kernel_after)):
                kernels = await asyncio.to_thread(lambda entry: entry.kernels, _rig(ctx).reports.get(identity))
                launches.append(telling.one(kernels, telling.longest(kernels) if kernel is None else kernel))
            return contrast.compare(launches[0], launches[1], (before, after))


def _add_resources(mcp: MCPServer[Any]) -> None:
    @mcp.resource("ncu://report/{report_id}", mime_type="application/json", title="Digest of a report")
    def report(report_id: str, ctx: Context[Any, Any]) -> str:
        """The digest of the longest launch, whole."""
        return _entry(ctx, report_id, lambda entry: telling.told(entry).model_dump_json())

    @mcp.resource("ncu://report/{report_id}/raw", mime_type="application/octet-stream", title="The .ncu-rep file")
    def raw(report_id: str, ctx: Context[Any, Any]) -> bytes:
        """The report as ncu wrote it, for Nsight Compute's own viewer."""
        return _entry(ctx, report_id, lambda entry: entry.raw)

    @mcp.resource("ncu://report/{report_id}/{part}", mime_type="application/json", title="A part of a report")
    def part(report_id: str, part: str, ctx: Context[Any, Any]) -> str:
        """All launches' `metrics`, `rules` or `source` (what was counted a line) as JSON; the `log` of ncu."""
        return _entry(ctx, report_id, lambda entry: telling.part(entry, part))


def _entry(ctx: Context[Any, Any], report_id: str, give: Callable[[reports.Entry], T]) -> T:
    try:
        return give(_rig(ctx).reports.get(report_id))
    except (Refusal, OSError) as fault:
        raise ResourceNotFoundError(str(fault)) from None
