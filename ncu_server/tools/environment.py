"""The tool that says what this machine can measure."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from ncu_server.machine import environment
from ncu_server.profiler import counters
from ncu_server.tools.arguments import READ_ONLY, TimeoutS
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import evaluation


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Check the environment", annotations=READ_ONLY)
    async def check_environment(
        ctx: ToolContext,
        probe_counters: Annotated[bool, Field(description="also see whether counters may be read (10 s)")] = False,
        brief: Annotated[bool, Field(description="no tools")] = False,
        timeout_s: TimeoutS = 180,
    ) -> evaluation.EnvironmentResult:
        """What this machine can measure, and a fix for each thing missing."""
        async with served(ctx, timeout_s) as progress:
            found = await asyncio.to_thread(environment.check, state(ctx).workshop.machine.places, brief)
            if probe_counters:
                found.counters = await counters.probed(state(ctx).workshop.machine, state(ctx).reports, progress)
            return found
