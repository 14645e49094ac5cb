"""The tool that runs a kernel under compute-sanitizer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ncu_server.compiler import compile
from ncu_server.errors import Code, Refusal
from ncu_server.sanitizer import sanitize
from ncu_server.sanitizer.records import SanitizeResult, Tool
from ncu_server.tools.arguments import RUNS_CODE
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Sanitize a kernel", annotations=RUNS_CODE)
    async def sanitize_kernel(
        ctx: ToolContext,
        candidate: Annotated[str | None, Field(description="source as for evaluate_kernel, or a build_id")] = None,
        problem: Annotated[str | None, Field(description="PyTorch source that the candidate is for")] = None,
        target: Annotated[str, Field(description="`cuda` or `triton`")] = "cuda",
        command: Annotated[
            list[str] | None, Field(description="instead of both: a program and its arguments; no shell reads it")
        ] = None,
        folder: Annotated[str | None, Field(description="where `command` runs; by default an empty folder")] = None,
        tool: Annotated[
            Tool,
            Field(
                description="memcheck: out of bounds, misaligned; racecheck: hazards in shared memory; initcheck: "
                "uninitialised global memory; synccheck: barriers"
            ),
        ] = "memcheck",
        kernel: Annotated[
            str | None, Field(pattern=r"^\w+$", description="watch only kernels whose name holds this")
        ] = None,
        timeout_s: Annotated[float, Field(gt=0, le=3600, description="limit in seconds for the run")] = 300,
    ) -> SanitizeResult:
        """Run a kernel under compute-sanitizer: illegal accesses, races and uninitialised reads with file and line."""
        workshop = state(ctx).workshop
        async with served(ctx, None) as progress:
            look = sanitize.Look(tool, kernel, timeout_s)
            if command:
                return await sanitize.command(workshop.machine, command, folder, look, progress)
            if candidate is None or problem is None:
                raise Refusal(Code.BAD_ARGUMENT, "give a candidate and its problem, or a command")
            source = compile.candidate_of(state(ctx).store, candidate)
            request = sanitize.SanitizeRequest(source, problem, target, look)
            return await sanitize.sanitize(workshop, request, progress)
