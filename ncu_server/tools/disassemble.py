"""The tool that shows the code of one kernel."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ncu_server.compiler import compile, disassemble
from ncu_server.errors import Code, Refusal
from ncu_server.tools.arguments import RUNS_CODE, Arch, CompiledCandidate, TimeoutS
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire.compilation import Listing


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool("disassemble", title="Disassemble a kernel", annotations=RUNS_CODE)
    async def disassemble_kernel(
        ctx: ToolContext,
        build_id: Annotated[str | None, Field(description="what compile_kernel gave")] = None,
        candidate: CompiledCandidate = None,
        kernel: Annotated[
            str | None, Field(description="name of the kernel or a part of it; by default the longest")
        ] = None,
        level: Annotated[
            disassemble.Level, Field(description="`sass`: what the card runs; `ptx`: what the compiler wrote")
        ] = "sass",
        first_line: Annotated[int, Field(ge=1, description="where to begin; `next_line` of the result goes on")] = 1,
        line_count: Annotated[int, Field(ge=1, le=disassemble.MOST_LINES, description="how many lines at most")] = 120,
        arch: Arch = None,
        timeout_s: TimeoutS = 240,
    ) -> Listing:
        """The code of one kernel with the source line before each piece, and counts of instructions by class."""
        machine, store = state(ctx).workshop.machine, state(ctx).store
        async with served(ctx, timeout_s) as progress:
            if build_id is None:
                if candidate is None:
                    raise Refusal(Code.BAD_ARGUMENT, "give either `candidate` or `build_id`")
                request = compile.CompileRequest(candidate, True, arch, timeout_s=timeout_s)
                result = await compile.compile_kernel(machine, store, request, progress)
                if result.build_id is None:
                    errors = "; ".join(d.text for d in result.diagnostics[:3]) or result.log
                    raise Refusal(
                        Code.BAD_ARGUMENT, f"the candidate does not compile ({result.status}): {errors[:300]}"
                    )
                build_id = result.build_id
            return await disassemble.disassemble(machine, store, build_id, kernel, level, first_line, line_count)
