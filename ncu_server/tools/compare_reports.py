"""The tool that says what changed between two profiled launches."""

from __future__ import annotations

import asyncio

from ncu_server.profiler import compare, render
from ncu_server.tools.arguments import READ_ONLY, Kernel, ReportId, TimeoutS
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import profiling


def add(mcp: Surface) -> None:
    """Register it."""

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
