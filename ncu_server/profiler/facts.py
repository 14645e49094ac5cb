"""What stands in a report, as data: the form in which the report reader prints it and the store keeps it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel


class RuleFact(BaseModel):
    """What one of ncu's rules says, its markup still in it. `kind`: 1 fine, 2 optimization, 3 warning, 4 error."""

    rule: str | None
    section: str | None
    title: str | None
    text: str
    kind: int
    speedup_pct: float | None = None
    scope: Literal["local", "global"] | None = None
    metrics: list[str] = []


class OpcodeFact(NamedTuple):
    """How often an opcode was executed, by warp and by thread, and the samples taken at it."""

    executed: int = 0
    threads: int = 0
    samples: int = 0


class CallerFact(BaseModel):
    """The line of the kernel's own file that a line of another file was inlined into."""

    file: str
    line: int
    text: str


class LineFact(BaseModel):
    """What was sampled and counted at a line; file and line are null where the instruction stands for itself.

    `executed` counts instructions by warp, `threads` by thread; `opcodes` are by the opcode with its suffixes.
    `lanes_lost` and `barrier_waits` lie where they are caused, as `ncu_server.profiler.causes` has it.
    """

    file: str | None
    line: int | None
    text: str
    called_from: CallerFact | None = None
    samples: int = 0
    executed: int = 0
    threads: int = 0
    opcodes: dict[str, OpcodeFact] = {}
    global_sectors: int = 0
    global_ideal: int = 0
    shared_wavefronts: int = 0
    shared_ideal: int = 0
    local_sectors: int = 0
    lanes_lost: int = 0
    barrier_waits: int = 0
    stalls: dict[str, int] = {}


class KernelFacts(BaseModel):
    """One launch of one kernel; `metrics` are in the units that `units` names, `ranges` the NVTX ranges around it.

    `opcodes` counts the executed instructions of all lines, also of those that were left out.
    """

    name: str
    demangled: str = ""
    ranges: list[str] = []
    metrics: dict[str, float | str] = {}
    units: dict[str, str] = {}
    rules: list[RuleFact] = []
    lines: list[LineFact] = []
    opcodes: dict[str, OpcodeFact] = {}


class ReportFacts(BaseModel):
    """All launches of a report, and the version of the reader."""

    reader: str
    kernels: list[KernelFacts]
