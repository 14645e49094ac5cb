"""The wire of profiling. Numbers are floats in the unit that the name ends with; what is not known is null."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Bound = Literal["compute", "memory", "latency", "launch", "near the limit", "unknown"]
Rung = Literal["counters", "timeline", "static"]
Trouble = Literal[
    "uncoalesced",
    "bank_conflicts",
    "spills",
    "low_occupancy",
    "tensor_idle",
    "small_grid",
    "tail",
    "divergence",
    "barriers",
    "global_atomics",
    "shared_atomics",
    "double_arithmetic",
    "narrow_access",
    "redundant_loads",
    "integer_division",
    "instruction_cache",
    "uneven_sms",
    "few_eligible",
]


class SourceLine(BaseModel):
    """A line of source; `candidate_line` is the same line in the candidate that was given."""

    file: str | None = None
    line: int | None = None
    candidate_line: int | None = None
    text: str


class Finding(BaseModel):
    """One thing that is wrong with the kernel, in words, and where."""

    trouble: Trouble
    words: str
    place: SourceLine | None = None


class SpeedOfLight(BaseModel):
    """How much of each unit's peak was used; `compute_unit` and `memory_unit` are the busiest of either kind."""

    compute_pct: float | None = None
    memory_pct: float | None = None
    dram_pct: float | None = None
    l2_pct: float | None = None
    l1_pct: float | None = None
    compute_unit: str | None = None
    memory_unit: str | None = None


class Roofline(BaseModel):
    """Single precision operations and bytes of DRAM; peaks at the clocks of the profiled run, `measured_` elsewhere."""

    gflops: float | None = None
    flops_per_byte: float | None = None
    dram_gbps: float | None = None
    peak_gflops: float | None = None
    peak_dram_gbps: float | None = None
    measured_copy_gbps: float | None = None
    measured_copy_pct: float | None = None


class Occupancy(BaseModel):
    """Warps on an SM, and what allows no more."""

    achieved_pct: float | None = None
    possible_pct: float | None = None
    limiter: str | None = None
    registers_per_thread: float | None = None
    shared_bytes_per_block: float | None = None
    threads_per_block: float | None = None
    blocks: float | None = None
    waves: float | None = None
    sms: float | None = None


class Stall(BaseModel):
    """What a warp waits for between two instructions."""

    reason: str
    share_pct: float
    waits_for: str


class Memory(BaseModel):
    """How well memory was used. `excess_pct` is the share of sectors, or of shared memory's wavefronts, beyond need."""

    load_sectors_per_request: float | None = None
    store_sectors_per_request: float | None = None
    global_excess_pct: float | None = None
    shared_excess_pct: float | None = None
    bank_conflict_ways: float | None = None
    l1_hit_pct: float | None = None
    l2_hit_pct: float | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    local_instructions: float | None = Field(default=None, description="loads and stores of spilled values and stacks")


class NcuRule(BaseModel):
    """A lead of ncu's: estimates do not add up; `global` is a share of the kernel's time, `local` of one unit's."""

    title: str
    section: str | None
    speedup_pct: float | None
    scope: Literal["global", "local"] | None
    text: str


class HotLine(SourceLine):
    """A line that warps were sampled at; the share is of all samples.

    `called_from` is the kernel's own line that a line of a header was inlined into.
    """

    samples: int
    share_pct: float
    stalls: dict[str, float] = Field(default={}, description="top reasons, percent of the line's samples")
    called_from: SourceLine | None = None


class Missing(BaseModel):
    """A number that is not there, and why."""

    metric: str
    reason: str


class Counter(BaseModel):
    """A number that has no field of its own, by what it is."""

    what: str
    value: float
    unit: str


class KernelDigest(BaseModel):
    """One launch of one kernel, read off the report. `duration_us` is ncu's at ncu's clocks, and never the score."""

    name: str
    duration_us: float | None
    clock_ghz: float | None
    bound: Bound
    why: str
    findings: list[Finding] = []
    speed_of_light: SpeedOfLight = SpeedOfLight()
    roofline: Roofline = Roofline()
    occupancy: Occupancy = Occupancy()
    stalls: list[Stall] = []
    memory: Memory = Memory()
    tensor_pct: float | None = None
    fma_pct: float | None = None
    issue_pct: float | None = None
    rules: list[NcuRule] = []
    hot_lines: list[HotLine] = []
    confidence: Literal["high", "low"] = "high"
    doubts: list[str] = []
    missing: list[Missing] = []
    counters: list[Counter] = []


class KernelRow(BaseModel):
    """A launch in one line."""

    index: int
    name: str
    duration_us: float | None
    share_pct: float | None = Field(default=None, description="of all launches that were profiled")
    bound: Bound


class Loop(BaseModel):
    """An innermost loop of machine code: its instructions, arithmetic on vectors and on single floats among them."""

    instructions: int
    vector: int
    scalar: int
    spills: int = Field(description="moves of vector registers to or from the stack")
    calls: list[str] = []


class StaticKernel(BaseModel):
    """What the compiler made of a kernel, and how many blocks an SM could hold. `instructions` is a mix of SASS.

    Of a function for the CPU there are `loops` alone.
    """

    name: str
    registers_per_thread: float | None = None
    shared_bytes_per_block: float | None = None
    stack_bytes: float | None = None
    local_bytes: float | None = None
    possible_occupancy_pct: dict[str, float] = Field(default={}, description="by threads a block; none is known here")
    instructions: dict[str, float] = {}
    tensor_instructions: float | None = None
    local_instructions: float | None = None
    loops: list[Loop] = []


class KernelReport(BaseModel):
    """A report, or what stands in for one: the longest launch in full, the others in a line each."""

    report_id: str | None
    uri: str | None = None
    rung: Rung = Field(default="counters", description="what it was read from; below `counters` much is not known")
    device: str | None = None
    arch: str | None = None
    writer: str | None = Field(default=None, description="version of ncu")
    collected: str | None = Field(default=None, description="sections, clock and cache control, passes")
    kernels: list[KernelRow] = []
    digest: KernelDigest | None = None
    static: list[StaticKernel] = []
    notes: list[str] = []


class Refused(BaseModel):
    """A rung of the ladder that did not hold, and what would make it hold."""

    rung: Rung
    code: str
    reason: str
    fix: str


class Profiled(BaseModel):
    """One of the targets: its report, or the fault of its own that left it without one."""

    target: str
    status: Literal["profiled", "build_error", "run_error", "rejected", "no_kernel"]
    log: str = ""
    report: KernelReport | None = None


class ProfileResult(BaseModel):
    """What was asked for, in order. `refused` says why a better rung was not taken."""

    profiles: list[Profiled]
    refused: list[Refused] = []
    seconds: dict[str, float] = Field(default={}, description="wall seconds by step")
    notes: list[str] = []


class MetricRow(BaseModel):
    """One counter as ncu names it."""

    name: str
    value: float | str
    unit: str | None


class MetricsResult(BaseModel):
    """Counters of one launch whose names match; `cursor` is where the rest begins."""

    report_id: str
    kernel: int
    name: str
    total: int
    metrics: list[MetricRow]
    cursor: int | None


class Change(BaseModel):
    """One number before and after."""

    what: str
    before: float | None
    after: float | None
    unit: str


class ComparisonResult(BaseModel):
    """Two launches held against each other; `says` is the gist in plain words."""

    says: list[str]
    comparable: bool
    before: str
    after: str
    changes: list[Change]
    rules_resolved: list[str]
    rules_new: list[str]
    notes: list[str] = []
