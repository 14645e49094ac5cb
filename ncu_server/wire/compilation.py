"""The wire of compiling and disassembling. Numbers are in the unit that the name ends with; null is not known."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Diagnostic(BaseModel):
    """One thing that a compiler said of a line."""

    severity: Literal["error", "warning", "remark"]
    text: str
    file: str | None = None
    line: int | None = None
    source: str | None = Field(default=None, description="the line itself, where the compiler shows it")
    candidate_line: int | None = Field(default=None, description="the same line in the candidate's module")
    notes: list[str] = Field(default=[], description="what the compiler added to it; of the first few alone")


class Resources(BaseModel):
    """What the compiler gave one kernel; spills are what did not fit into registers and goes through memory."""

    name: str
    mangled: str
    registers: int | None = None
    shared_bytes: int | None = Field(default=None, description="static shared memory of a block")
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    barriers: int | None = None
    possible_occupancy_pct: dict[str, float] = Field(
        default={}, description="share of an SM's warps that can be resident, by threads of a block"
    )


class CompileResult(BaseModel):
    """What the compiler made or said; `build_id` is there exactly when it compiled."""

    status: Literal["compiled", "build_error", "rejected", "timeout"]
    build_id: str | None = Field(default=None, description="for disassemble; the same for the same source and flags")
    arch: str
    compiler: str | None = None
    kernels: list[Resources] = []
    diagnostics: list[Diagnostic] = Field(default=[], description="errors first")
    left_out: dict[str, int] = Field(default={}, description="how many of a list above are not shown")
    log: str = Field(default="", description="what was said where no diagnostic could be read")
    seconds: float = 0.0
    resources: list[str] = Field(default=[], description="resources that hold the whole SASS, PTX and words of ptxas")
    notes: list[str] = []


class Mix(BaseModel):
    """Instructions of a kernel as they stand in its code: how often each runs is not known from here."""

    total: int
    classes: dict[str, int]
    opcodes: dict[str, int] = Field(description="the most frequent")
    global_load_bits: dict[str, int] = Field(default={}, description="loads from global memory by width")
    spill_instructions: int = 0


class Listing(BaseModel):
    """Part of one kernel's code; `next_line` goes on where it ends."""

    build_id: str
    kernel: str
    mangled: str
    arch: str
    level: Literal["sass", "ptx"]
    text: str = Field(description="in SASS, `// file:line` stands before what the line became")
    first_line: int
    lines: int = Field(description="of the whole kernel")
    next_line: int | None = None
    mix: Mix
    others: list[str] = Field(default=[], description="further kernels of the build")
    uri: str
    notes: list[str] = []
