"""The MCP shell: tools, resources and progress. No logic lives here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from ncu_server import describe, environment, evaluate, profiling_tools, schema
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Report
from ncu_server.rig import Rig
from ncu_server.session import BASELINES
from ncu_server.trial import Request
from ncu_server.web import OneToken, authorization

HEARTBEAT_S = 5.0
INSTRUCTIONS = """Judges GPU and CPU kernels for PyTorch modules. Work in this order:
1. check_environment says which targets this machine has.
2. describe_problem gives the traced graph, the work counted, and how fast PyTorch itself is.
3. evaluate_kernel builds, checks and times one candidate. A wrong or slow kernel is a normal result with a status;
   an error means that the call itself could not be served, and says what to do.
The server runs the code that it is given. Offer it only to those who may run code on this machine."""

Problem = Annotated[
    str,
    Field(description="PyTorch source that defines `Model`, `get_inputs` and `get_init_inputs` (KernelBench's form)"),
]
TargetName = Annotated[str, Field(description="`cpu` (C++ with OpenMP) or `cuda` (CUDA C++)")]
Baselines = Annotated[list[str], Field(description=f"any of {', '.join(f'`{name}`' for name in BASELINES)}")]


@dataclass(slots=True)
class State:
    """What lives as long as the server."""

    rig: Rig
    graphs: dict[str, dict[str, Any]] = field(default_factory=dict)


def make_server(cache: Path | None = None, token: OneToken | None = None) -> MCPServer[State]:
    """A server with its own rig; children start at the first call that needs them. `token` is for HTTP alone."""

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[State]) -> AsyncIterator[State]:
        state = State(Rig(cache))
        try:
            yield state
        finally:
            state.rig.close()

    mcp: MCPServer[State] = MCPServer(
        "ncu_server",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
        token_verifier=token,
        auth=authorization() if token else None,
    )
    _add_tools(mcp)
    profiling_tools.add(mcp, _served)

    @mcp.resource("problem://{problem_id}/graph", mime_type="application/json", title="Traced graph of a problem")
    def graph(problem_id: str, ctx: Context[State, Any]) -> str:
        """The whole ATen graph of a problem that describe_problem has traced: inputs, parameters, nodes, outputs."""
        graphs = ctx.request_context.lifespan_context.graphs
        if problem_id not in graphs:
            raise ResourceNotFoundError(f"no graph of problem {problem_id}; call describe_problem first")
        return json.dumps(graphs[problem_id])

    return mcp


def _add_tools(mcp: MCPServer[State]) -> None:
    read_only = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    runs_code = ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    @mcp.tool(title="Check the environment", annotations=read_only)
    async def check_environment() -> schema.EnvironmentResult:
        """What this machine can measure: targets, compilers, profilers, versions, and a fix for each thing missing."""
        return await asyncio.to_thread(environment.check)

    @mcp.tool(title="Describe a problem", annotations=runs_code)
    async def describe_problem(
        ctx: Context[State, Any],
        problem: Problem,
        target: TargetName,
        baselines: Annotated[
            list[str] | None, Field(description="as for evaluate_kernel; by default all that differ on the target")
        ] = None,
        timeout_s: Annotated[
            float, Field(gt=0, le=3600, description="limit for the whole call, queueing included")
        ] = 900,
    ) -> schema.DescribeResult:
        """Trace a PyTorch module, count its bytes and FLOPs, and time it eager and in the modes of torch.compile."""
        state = ctx.request_context.lifespan_context
        async with _served(ctx, timeout_s) as report:
            result, graph = await describe.describe(state.rig, problem, target, tuple(baselines or ()), report)
            if graph:
                state.graphs[result.problem_id] = graph
            return result

    @mcp.tool(title="Evaluate a kernel", annotations=runs_code)
    async def evaluate_kernel(
        ctx: Context[State, Any],
        candidate: Annotated[str, Field(description="Python module that defines `ModelNew`, built by `load_inline`")],
        problem: Problem,
        target: TargetName,
        baselines: Baselines = ["eager"],  # noqa: B006
        fresh: Annotated[
            bool, Field(description="judge with new secret inputs in new processes, as for a winner")
        ] = False,
        timeout_s: Annotated[
            float, Field(gt=0, le=3600, description="limit for each of build, check, timed call")
        ] = 120,
        rules: Annotated[
            schema.Rules,
            Field(description="`default` lets library calls beside kernels of its own pass; `strict` does not"),
        ] = "default",
    ) -> schema.EvaluateResult:
        """Build, check and time one candidate against the reference, each in a process of its own, on secret inputs."""
        state = ctx.request_context.lifespan_context
        request = Request(candidate, problem, target, tuple(baselines), fresh, timeout_s, rules)
        async with _served(ctx, None) as report:
            return await evaluate.evaluate(state.rig, request, report)


@contextlib.asynccontextmanager
async def _served(ctx: Context[State, Any], timeout_s: float | None) -> AsyncIterator[Report]:
    """Progress with a heartbeat inside; every fault leaves as a tool error, one sentence that starts with its code."""
    said = ["starting"]
    count = 0

    async def report(message: str) -> None:
        nonlocal count
        count += 1
        said[0] = message
        await ctx.report_progress(count, None, message)

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await report(said[0])

    heart = asyncio.create_task(beat())
    try:
        async with asyncio.timeout(timeout_s):
            yield report
    except Refusal as refusal:
        raise ToolError(str(refusal)) from refusal
    except TimeoutError:
        sentence = f"the call took longer than timeout_s = {timeout_s} s; raise timeout_s or make the problem smaller"
        raise ToolError(f"{Code.BAD_ARGUMENT}: {sentence}") from None
    except Exception as fault:
        logging.getLogger("ncu_server").exception("a tool failed")
        raise ToolError(f"{Code.INTERNAL}: {type(fault).__name__}: {fault}") from fault
    finally:
        heart.cancel()


def main() -> None:
    """Serve on stdio."""
    make_server().run("stdio")
