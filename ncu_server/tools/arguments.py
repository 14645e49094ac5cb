"""Arguments that several tools share, and what a tool may do."""

from __future__ import annotations

from typing import Annotated

from mcp.types import ToolAnnotations
from pydantic import AfterValidator, Field

from ncu_server.judge.modes import BASELINES

MOST_SOURCE = 1 << 21  # characters: its rules are read in seconds, and networks of 65 kernels have up to 1.4 million
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
RUNS_CODE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def _plain(text: str) -> str:
    """Without the mark that some editors put first, and with plain line ends, as Python reads a source and compilers
    its macros. Raises ValueError for what no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no text") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


SourceText = Annotated[str, Field(max_length=MOST_SOURCE), AfterValidator(_plain)]
"""A source as an argument of a tool."""

TimeoutS = Annotated[float, Field(gt=0, le=3600, description="limit for the call in seconds, queueing too")]
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
CompiledCandidate = Annotated[
    SourceText | None,
    Field(description="Python module with `ModelNew` and CUDA in `load_inline`, as for evaluate_kernel"),
]
Arch = Annotated[
    str | None, Field(description="`sm_80`, `sm_90` or another; by default that of the GPU here, else sm_90")
]
ReportId = Annotated[str, Field(description="id that profile_kernel or read_report gave")]
Kernel = Annotated[int | None, Field(ge=0, description="place of the launch in the report; by default the longest")]
