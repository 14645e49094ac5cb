"""The tool that says whether a kernel is right and fast."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ncu_server.judge import evaluate
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.tools.arguments import RUNS_CODE, Baselines, Candidate, Problem, TargetName
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import evaluation


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Evaluate a kernel", annotations=RUNS_CODE)
    async def evaluate_kernel(
        ctx: ToolContext,
        candidate: Candidate,
        problem: Problem,
        target: TargetName,
        baselines: Baselines = ["eager"],  # noqa: B006
        fresh: Annotated[
            bool, Field(description="judge with new secret inputs in new processes, as for a winner")
        ] = False,
        timeout_s: Annotated[
            float, Field(gt=0, le=3600, description="limit in seconds for each of build, check, timed call")
        ] = 120,
        rules: Annotated[
            evaluation.Rules,
            Field(description="`default` lets library calls beside kernels of its own pass; `strict` does not"),
        ] = "default",
        heeds_compiler: Annotated[
            bool,
            Field(
                description="end with `poor_build`, before it runs, where registers spill or wgmma is serialized; "
                "called again without, the build is there already"
            ),
        ] = False,
    ) -> evaluation.EvaluateResult:
        """Build, check and time one candidate against the reference, each in a process of its own, on secret inputs."""
        request = EvaluateRequest(candidate, problem, target, tuple(baselines), fresh, timeout_s, rules, heeds_compiler)
        async with served(ctx, None) as progress:
            return await evaluate.evaluate(state(ctx).workshop, request, progress)
