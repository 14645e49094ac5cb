"""The tool that tries a module by itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ncu_server.judge import verify
from ncu_server.tools.arguments import RUNS_CODE, Candidate, Problem, TargetName
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import evaluation


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Try a module by itself", annotations=RUNS_CODE)
    async def verify_module(
        ctx: ToolContext,
        source: Candidate,
        problem: Problem,
        target: TargetName,
        timeout_s: Annotated[
            float, Field(gt=0, le=3600, description="limit in seconds for the build and for the use")
        ] = 600,
    ) -> evaluation.ModuleResult:
        """Import a module from an empty folder, with nothing set up for it, and use it as people use modules."""
        async with served(ctx, None) as progress:
            request = verify.VerifyRequest(source, problem, target, timeout_s)
            return await verify.verify(state(ctx).workshop.machine, request, progress)
