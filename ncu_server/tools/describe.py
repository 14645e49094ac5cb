"""The tool that says what a problem is, and the resources of a problem."""

from __future__ import annotations

import json
from typing import Annotated

from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import Field

from ncu_server.judge import describe
from ncu_server.tools.arguments import RUNS_CODE, Problem, TargetName, TimeoutS
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import evaluation


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Describe a problem", annotations=RUNS_CODE)
    async def describe_problem(
        ctx: ToolContext,
        problem: Problem,
        target: TargetName,
        baselines: Annotated[
            list[str] | None,
            Field(description="as for evaluate_kernel; by default the target's; kept ones come too"),
        ] = None,
        timeout_s: TimeoutS = 900,
    ) -> evaluation.DescribeResult:
        """Trace a PyTorch module, count its bytes and FLOPs, and time it eager and in the modes of torch.compile."""
        here = state(ctx)
        async with served(ctx, timeout_s) as progress:
            result, graph, contract = await describe.describe(
                here.workshop, problem, target, tuple(baselines or ()), progress
            )
            if graph:
                here.store.keep(f"graph-{result.problem_id}", {"graph.json": json.dumps(graph).encode()})
            here.store.keep(f"contract-{result.problem_id}", {"contract.json": json.dumps(contract).encode()})
            return result

    @mcp.resource("problem://{problem_id}/graph", mime_type="application/json", title="Traced graph of a problem")
    def graph(problem_id: str, ctx: ToolContext) -> str:
        """The whole ATen graph of a problem that describe_problem has traced: inputs, parameters, nodes, outputs."""
        folder = state(ctx).store.find(f"graph-{problem_id}")
        if folder is None:
            raise ResourceNotFoundError(f"no graph of problem {problem_id}; call describe_problem first")
        return (folder / "graph.json").read_text()

    @mcp.resource("problem://{problem_id}/contract", mime_type="application/json", title="What a problem's calls take")
    def contract(problem_id: str, ctx: ToolContext) -> str:
        """Shapes, dtypes, strides and structures of the calls of a problem that describe_problem has seen."""
        folder = state(ctx).store.find(f"contract-{problem_id}")
        if folder is None:
            raise ResourceNotFoundError(f"no contract of problem {problem_id}; call describe_problem first")
        return (folder / "contract.json").read_text()
