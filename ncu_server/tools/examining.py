"""The tools that look at a kernel without timing it: compile, disassemble, sanitize."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from pydantic import Field

from ncu_server.build import compile, disassemble
from ncu_server.errors import Code, Refusal
from ncu_server.sanitizer import sanitize
from ncu_server.sanitizer.records import SanitizeResult, Tool
from ncu_server.tools.surface import RUNS_CODE, SourceText, Surface, TimeoutS, ToolContext, served, state
from ncu_server.wire.compilation import CompileResult, Listing

Candidate = Annotated[
    SourceText | None,
    Field(description="Python module with `ModelNew` and CUDA in `load_inline`, as for evaluate_kernel"),
]
Source = Annotated[str | None, Field(description="instead: the text of a .cu file; it needs no host code")]
Arch = Annotated[
    str | None, Field(description="`sm_80`, `sm_90` or another; by default that of the GPU here, else sm_90")
]
Flags = Annotated[
    list[str] | None, Field(description="nvcc's flags that change code: -use_fast_math, -maxrregcount=64, -DN=4 ...")
]
PARTS = ("sass", "ptx", "ptxas")


def add(mcp: Surface) -> None:
    """Register them and the resources of builds."""
    _add_compiling(mcp)
    _add_disassembly(mcp)
    _add_sanitizing(mcp)
    _add_resources(mcp)


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


def _add_compiling(mcp: Surface) -> None:
    @mcp.tool(title="Compile a kernel", annotations=RUNS_CODE)
    async def compile_kernel(
        ctx: ToolContext,
        candidate: Candidate = None,
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
            return await compile.compiled(state(ctx).workshop.machine, state(ctx).kept, request, progress)


def _add_disassembly(mcp: Surface) -> None:
    @mcp.tool("disassemble", title="Disassemble a kernel", annotations=RUNS_CODE)
    async def disassemble_kernel(
        ctx: ToolContext,
        build_id: Annotated[str | None, Field(description="what compile_kernel gave")] = None,
        candidate: Candidate = None,
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
        machine, kept = state(ctx).workshop.machine, state(ctx).kept
        async with served(ctx, timeout_s) as progress:
            if build_id is None:
                request = _request(candidate, None, arch, None, True, timeout_s)
                result = await compile.compiled(machine, kept, request, progress)
                if result.build_id is None:
                    said = "; ".join(d.text for d in result.diagnostics[:3]) or result.log
                    raise Refusal(Code.BAD_ARGUMENT, f"the candidate does not compile ({result.status}): {said[:300]}")
                build_id = result.build_id
            return await disassemble.disassembled(machine, kept, build_id, kernel, level, first_line, line_count)


def _add_sanitizing(mcp: Surface) -> None:
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
            source = compile.candidate_of(state(ctx).kept, candidate)
            request = sanitize.SanitizeRequest(source, problem, target, look)
            return await sanitize.sanitize(workshop, request, progress)


def _add_resources(mcp: Surface) -> None:
    @mcp.resource("ncu://build/{build_id}/{part}", mime_type="text/plain", title="Code of a build")
    async def code(build_id: str, part: str, ctx: ToolContext) -> str:
        """All of a build's `sass`, `ptx`, or what `ptxas` said of its kernels."""
        here = state(ctx)
        try:
            folder = compile.folder_of(here.kept, build_id)
            if part == "ptxas":
                return (folder / compile.WORDS).read_text()
            if part in ("sass", "ptx"):
                return await disassemble.whole(here.workshop.machine, folder, "sass" if part == "sass" else "ptx")
        except (Refusal, OSError) as fault:
            raise ResourceNotFoundError(str(fault)) from None
        raise ResourceNotFoundError(f"a build has no part {part!r}; there are: {', '.join(PARTS)}")
