"""The tools and resources of profiling, for the MCP shell. No logic lives here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import Field

from ncu_server.build import compile
from ncu_server.errors import Code, Refusal
from ncu_server.profiler import compare, ncu, profile, render, reports
from ncu_server.tools.surface import READ_ONLY, RUNS_CODE, Surface, ToolContext, served, state
from ncu_server.wire import profiling

T = TypeVar("T")
ReportId = Annotated[str, Field(description="id that profile_kernel or read_report gave")]
Kernel = Annotated[int | None, Field(ge=0, description="place of the launch in the report; by default the longest")]
TimeoutS = Annotated[float, Field(gt=0, le=3600, description="limit for the call in seconds")]


def add(mcp: Surface) -> None:
    """Register them and the resources of reports."""
    _add_profiling(mcp)
    _add_reading(mcp)
    _add_comparing(mcp)
    _add_resources(mcp)


def _add_profiling(mcp: Surface) -> None:
    @mcp.tool(title="Profile kernels", annotations=RUNS_CODE)
    async def profile_kernel(
        ctx: ToolContext,
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
    ) -> profiling.ProfileResult:
        """Say why kernels take as long as they do: counters of each launch, what bounds it, which line is to blame."""
        here, selection = state(ctx), ncu.Selection(detail, kernel_regex, launch_skip, launch_count, clock)
        async with served(ctx, None) as progress:
            if command:
                return await profile.command(
                    here.workshop.machine, here.reports, command, folder, selection, timeout_s, progress
                )
            if not candidates or problem is None:
                raise Refusal(Code.BAD_ARGUMENT, "give candidates and their problem, or a command")
            sources = tuple(compile.candidate_of(here.kept, given) for given in candidates)
            request = profile.ProfileRequest(sources, problem, target, selection, timeout_s, arch)
            return await profile.profile(here.workshop, here.reports, request, progress)


def _add_reading(mcp: Surface) -> None:
    @mcp.tool(title="Read a report", annotations=READ_ONLY)
    async def read_report(
        ctx: ToolContext,
        report: Annotated[str, Field(description="id of a kept report, or path of a .ncu-rep file on this machine")],
        kernel: Kernel = None,
        timeout_s: TimeoutS = 240,
    ) -> profiling.KernelReport:
        """Say what a Nsight Compute report holds: bound, troubles with their line, stalls, rules, hot lines. No GPU."""
        async with served(ctx, timeout_s):
            store = state(ctx).reports
            if reports.is_id(report):
                entry = store.get(report)
            else:
                entry = await reports.kept(store, Path(report).expanduser(), reports.About())
            found = await asyncio.to_thread(render.told, entry, kernel)
            return render.fitted(found, [found.digest] if found.digest else [])

    @mcp.tool(title="Query counters", annotations=READ_ONLY)
    async def query_metrics(
        ctx: ToolContext,
        report_id: ReportId,
        pattern: Annotated[str, Field(description="part of a name, or a shell pattern: `l1tex__*global_op_ld*`")],
        kernel: Kernel = None,
        limit: Annotated[int, Field(ge=1, le=render.PAGE, description="most counters to give")] = render.PAGE,
        cursor: Annotated[int, Field(ge=0, description="where to go on, from the result before")] = 0,
        timeout_s: TimeoutS = 60,
    ) -> profiling.MetricsResult:
        """The counters of one launch by name, as ncu names them: for what a digest does not say."""
        async with served(ctx, timeout_s):
            entry = state(ctx).reports.get(report_id)
            return await asyncio.to_thread(render.counters, entry, kernel, pattern, limit, cursor)


def _add_comparing(mcp: Surface) -> None:
    @mcp.tool(title="Compare two reports", annotations=READ_ONLY)
    async def compare_reports(
        ctx: ToolContext,
        before: ReportId,
        after: ReportId,
        kernel_before: Kernel = None,
        kernel_after: Kernel = None,
        timeout_s: TimeoutS = 60,
    ) -> profiling.ComparisonResult:
        """What changed between two profiled launches, in plain words first: time, bound, troubles cured and new."""
        async with served(ctx, timeout_s):
            launches = []
            for identity, kernel in ((before, kernel_before), (after, kernel_after)):
                kernels = await asyncio.to_thread(lambda entry: entry.kernels, state(ctx).reports.get(identity))
                launches.append(render.one(kernels, render.longest(kernels) if kernel is None else kernel))
            return compare.compare(launches[0], launches[1], (before, after))


def _add_resources(mcp: Surface) -> None:
    @mcp.resource("ncu://report/{report_id}", mime_type="application/json", title="Digest of a report")
    def report(report_id: str, ctx: ToolContext) -> str:
        """The digest of the longest launch, whole."""
        return _entry(ctx, report_id, lambda entry: render.told(entry).model_dump_json())

    @mcp.resource("ncu://report/{report_id}/raw", mime_type="application/octet-stream", title="The .ncu-rep file")
    def raw(report_id: str, ctx: ToolContext) -> bytes:
        """The report as ncu wrote it, for Nsight Compute's own viewer."""
        return _entry(ctx, report_id, lambda entry: entry.raw)

    @mcp.resource("ncu://report/{report_id}/{part}", mime_type="application/json", title="A part of a report")
    def part(report_id: str, part: str, ctx: ToolContext) -> str:
        """All launches' `metrics`, `rules` or `source` (what was counted a line) as JSON; the `log` of ncu."""
        return _entry(ctx, report_id, lambda entry: render.part(entry, part))


def _entry(ctx: ToolContext, report_id: str, give: Callable[[reports.Entry], T]) -> T:
    try:
        return give(state(ctx).reports.get(report_id))
    except (Refusal, OSError) as fault:
        raise ResourceNotFoundError(str(fault)) from None
