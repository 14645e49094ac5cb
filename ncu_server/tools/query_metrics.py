"""The tool that gives counters of a report by name."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from ncu_server.profiler import render
from ncu_server.tools.arguments import READ_ONLY, Kernel, ReportId, TimeoutS
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import profiling


def add(mcp: Surface) -> None:
    """Register it."""

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
