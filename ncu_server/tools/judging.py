"""The tools that say what is here, what a problem is, and whether a kernel is right and fast."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import Field

from ncu_server.judge import describe, evaluate, verify
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.problem import BASELINES
from ncu_server.machine import environment
from ncu_server.profiler import counters
from ncu_server.tools.surface import READ_ONLY, RUNS_CODE, SourceText, Surface, TimeoutS, ToolContext, served, state
from ncu_server.wire import evaluation

Problem = Annotated[
    SourceText,
    Field(
        description="PyTorch source with `Model` (or one module of another name), `get_inputs` and, for its "
        "constructor, `get_init_inputs`; each gives a list, a dict of keywords, or `[[...], {...}]`"
    ),
]
Candidate = Annotated[
    SourceText,
    Field(description="Python module that defines `ModelNew` in place of `Model`, and calls `load_inline` on import"),
]
TargetName = Annotated[str, Field(description="`cpu` (C++ with OpenMP), `cuda` (CUDA C++) or `triton`")]
Baselines = Annotated[list[str], Field(description=f"any of {', '.join(f'`{name}`' for name in BASELINES)}")]


def add(mcp: Surface) -> None:
    """Register them."""
    _add_environment(mcp)
    _add_description(mcp)
    _add_evaluation(mcp)
    _add_verification(mcp)


def _add_environment(mcp: Surface) -> None:
    @mcp.tool(title="Check the environment", annotations=READ_ONLY)
    async def check_environment(
        ctx: ToolContext,
        probe_counters: Annotated[
            bool, Field(description="also profile a tiny kernel, to see whether the GPU's counters may be read (10 s)")
        ] = False,
        timeout_s: TimeoutS = 180,
    ) -> evaluation.EnvironmentResult:
        """What this machine can measure: targets, compilers, profilers, versions, and a fix for each thing missing."""
        async with served(ctx, timeout_s) as progress:
            found = await asyncio.to_thread(environment.check, state(ctx).workshop.machine.places)
            if probe_counters:
                found.counters = await counters.probed(state(ctx).workshop.machine, state(ctx).reports, progress)
            return found


def _add_description(mcp: Surface) -> None:
    @mcp.tool(title="Describe a problem", annotations=RUNS_CODE)
    async def describe_problem(
        ctx: ToolContext,
        problem: Problem,
        target: TargetName,
        baselines: Annotated[
            list[str] | None, Field(description="as for evaluate_kernel; by default all that differ on the target")
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
                here.kept.keep(f"graph-{result.problem_id}", {"graph.json": json.dumps(graph).encode()})
            here.kept.keep(f"contract-{result.problem_id}", {"contract.json": json.dumps(contract).encode()})
            return result

    @mcp.resource("problem://{problem_id}/graph", mime_type="application/json", title="Traced graph of a problem")
    def graph(problem_id: str, ctx: ToolContext) -> str:
        """The whole ATen graph of a problem that describe_problem has traced: inputs, parameters, nodes, outputs."""
        folder = state(ctx).kept.find(f"graph-{problem_id}")
        if folder is None:
            raise ResourceNotFoundError(f"no graph of problem {problem_id}; call describe_problem first")
        return (folder / "graph.json").read_text()

    @mcp.resource("problem://{problem_id}/contract", mime_type="application/json", title="What a problem's calls take")
    def contract(problem_id: str, ctx: ToolContext) -> str:
        """Shapes, dtypes, strides and structures of the calls of a problem that describe_problem has seen."""
        folder = state(ctx).kept.find(f"contract-{problem_id}")
        if folder is None:
            raise ResourceNotFoundError(f"no contract of problem {problem_id}; call describe_problem first")
        return (folder / "contract.json").read_text()


def _add_evaluation(mcp: Surface) -> None:
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
    ) -> evaluation.EvaluateResult:
        """Build, check and time one candidate against the reference, each in a process of its own, on secret inputs."""
        request = EvaluateRequest(candidate, problem, target, tuple(baselines), fresh, timeout_s, rules)
        async with served(ctx, None) as progress:
            return await evaluate.evaluate(state(ctx).workshop, request, progress)


def _add_verification(mcp: Surface) -> None:
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
