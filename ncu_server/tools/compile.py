"""The tool that compiles CUDA, and the resources of a build."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import Field

from ncu_server.compiler import compile, disassemble
from ncu_server.errors import Code, Refusal
from ncu_server.tools.arguments import RUNS_CODE, Arch, CompiledCandidate
from ncu_server.tools.state import ToolContext, served, state
from ncu_server.tools.surface import Surface
from ncu_server.wire.compilation import CompileResult

Source = Annotated[str | None, Field(description="instead: the text of a .cu file; it needs no host code")]
Flags = Annotated[
    list[str] | None, Field(description="nvcc's flags that change code: -use_fast_math, -maxrregcount=64, -DN=4 ...")
]
PARTS = ("sass", "ptx", "ptxas")


def _request(
    candidate: str | None,
    source: str | None,
    arch: str | None,
    flags: list[str] | None,
    lineinfo: bool,
    timeout_s: float,
) -> compile.CompileRequest:
    """Raises Refusal BAD_ARGUMENT where not exactly one of both sources is given."""
    given = candidate if source is None else source
    if given is None or (candidate is not None and source is not None):
        raise Refusal(Code.BAD_ARGUMENT, "give either `candidate` or `source`")
    return compile.CompileRequest(given, source is None, arch, tuple(flags or ()), lineinfo, timeout_s)


def add(mcp: Surface) -> None:
    """Register it."""

    @mcp.tool(title="Compile a kernel", annotations=RUNS_CODE)
    async def compile_kernel(
        ctx: ToolContext,
        candidate: CompiledCandidate = None,
        source: Source = None,
        arch: Arch = None,
        flags: Flags = None,
        lineinfo: Annotated[
            bool, Field(description="keep the lines of `source` in the code; a candidate's are always kept")
        ] = True,
        timeout_s: Annotated[float, Field(gt=0, le=3600, description="limit for the compiler in seconds")] = 120,
    ) -> CompileResult:
        """Compile CUDA without running it, and without a GPU: errors by line, registers, shared memory, spills."""
        async with served(ctx, None) as progress:
            request = _request(candidate, source, arch, flags, lineinfo, timeout_s)
            return await compile.compile_kernel(state(ctx).workshop.machine, state(ctx).store, request, progress)

    @mcp.resource("ncu://build/{build_id}/{part}", mime_type="text/plain", title="Code of a build")
    async def code(build_id: str, part: str, ctx: ToolContext) -> str:
        """All of a build's `sass`, `ptx`, or what `ptxas` said of its kernels."""
        here = state(ctx)
        try:
            folder = compile.folder_of(here.store, build_id)
            if part == "ptxas":
                return (folder / compile.WORDS).read_text()
            if part in ("sass", "ptx"):
                return await disassemble.whole(here.workshop.machine, folder, "sass" if part == "sass" else "ptx")
        except (Refusal, OSError) as fault:
            raise ResourceNotFoundError(str(fault)) from None
        raise ResourceNotFoundError(f"a build has no part {part!r}; there are: {', '.join(PARTS)}")
