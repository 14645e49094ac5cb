"""The tool that says why kernels take as long as they do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ncu_server.compiler import compile
from ncu_server.errors import Code, Refusal
from ncu_server.profiler import ncu, profile, render
from ncu_server.tools.arguments import RUNS_CODE
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire import profiling
from ncu_server.wire.meta import WHOLE


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Profile kernels", annotations=RUNS_CODE)
    async def profile_kernel(
        ctx: ToolContext,
        candidates: Annotated[
            list[str] | None,
            Field(description="sources as for evaluate_kernel, or build_ids, one to eight; one start serves all"),
        ] = None,
        problem: Annotated[str | None, Field(description="PyTorch source that the candidates are for")] = None,
        target: Annotated[str, Field(description="`cuda` or `triton`")] = "cuda",
        command: Annotated[
            list[str] | None, Field(description="instead of candidates: a program and its arguments; no shell reads it")
        ] = None,
        folder: Annotated[str | None, Field(description="where `command` runs; by default an empty folder")] = None,
        detail: Annotated[
            str, Field(description="`basic` (fast), `standard`, `full`, or names of ncu's sections with commas")
        ] = "standard",
        kernel_regex: Annotated[str | None, Field(description="profile only kernels whose name it finds")] = None,
        launch_skip: Annotated[int, Field(ge=0, description="matching launches to pass over first")] = 0,
        launch_count: Annotated[int, Field(ge=1, le=100, description="launches to profile for each candidate")] = 16,
        clock: Annotated[
            Literal["base", "none"], Field(description="`base` fixes the clock: comparable, and slower than in use")
        ] = "base",
        arch: Annotated[
            str | None, Field(description="`sm_90` or another: where there is no GPU, what to compile for and look at")
        ] = None,
        timeout_s: Annotated[float, Field(gt=0, le=3600, description="limit for each run of ncu and each build")] = 300,
    ) -> profiling.ProfileResult:
        """Say why kernels take as long as they do: counters of each launch, what bounds it, which line is to blame."""
        here, selection = state(ctx), ncu.Selection(detail, kernel_regex, launch_skip, launch_count, clock)
        async with served(ctx, None) as progress:
            if command:
                result = await profile.command(
                    here.workshop.machine, here.reports, command, folder, selection, timeout_s, progress
                )
            elif candidates and problem is not None:
                sources = tuple(compile.candidate_of(here.store, one) for one in candidates)
                request = profile.ProfileRequest(sources, problem, target, selection, timeout_s, arch)
                result = await profile.profile(here.workshop, here.reports, request, progress)
            else:
                raise Refusal(Code.BAD_ARGUMENT, "give candidates and their problem, or a command")
            return result if (ctx.request_context.meta or {}).get(WHOLE) else render.brief(result)
