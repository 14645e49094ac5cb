"""The tool that reads a report of Nsight Compute, and the resources of a report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import Field

from ncu_server.errors import Refusal
from ncu_server.profiler import render, reports
from ncu_server.tools.arguments import READ_ONLY, Kernel, TimeoutS
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import profiling

T = TypeVar("T")


def _entry(ctx: ToolContext, report_id: str, give: Callable[[reports.Entry], T]) -> T:
    try:
        return give(state(ctx).reports.get(report_id))
    except (Refusal, OSError) as fault:
        raise ResourceNotFoundError(str(fault)) from None


def add(mcp: Surface) -> None:
    """Register it."""

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
                entry = await reports.keep(store, Path(report).expanduser(), reports.About())
            found = await asyncio.to_thread(render.report, entry, kernel)
            return render.fitted(found, [found.digest] if found.digest else [])

    @mcp.resource("ncu://report/{report_id}", mime_type="application/json", title="Digest of a report")
    def report(report_id: str, ctx: ToolContext) -> str:
        """The digest of the longest launch, whole."""
        return _entry(ctx, report_id, lambda entry: render.report(entry).model_dump_json())

    @mcp.resource("ncu://report/{report_id}/raw", mime_type="application/octet-stream", title="The .ncu-rep file")
    def raw(report_id: str, ctx: ToolContext) -> bytes:
        """The report as ncu wrote it, for Nsight Compute's own viewer."""
        return _entry(ctx, report_id, lambda entry: entry.raw)

    @mcp.resource("ncu://report/{report_id}/{part}", mime_type="application/json", title="A part of a report")
    def part(report_id: str, part: str, ctx: ToolContext) -> str:
        """All launches' `metrics`, `rules` or `source` (what was counted a line) as JSON; the `log` of ncu."""
        return _entry(ctx, report_id, lambda entry: render.part(entry, part))
