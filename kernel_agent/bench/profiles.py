"""What the measuring server's profiler says, put into a Profile's words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_agent.run.types import HotSpot, Profile

TITLES = {
    "achieved_pct": "occupancy {:.0f} %",
    "possible_pct": "possible occupancy {:.0f} %",
    "registers_per_thread": "{:.0f} registers a thread",
    "shared_bytes_per_block": "{:.0f} bytes of shared memory a block",
    "threads_per_block": "{:.0f} threads a block",
    "blocks": "{:.0f} blocks",
    "waves": "{:.3g} waves",
    "compute_pct": "compute {:.0f} % of peak",
    "memory_pct": "memory {:.0f} % of peak",
    "tensor_pct": "tensor pipe {:.0f} % of peak",
    "dram_pct": "DRAM {:.0f} % of peak",
    "dram_gbps": "DRAM {:.0f} GB/s",
    "dram_read_bytes": "{:.4g} bytes read from DRAM",
    "dram_written_bytes": "{:.4g} bytes written to DRAM",
    "flops_per_byte": "{:.3g} float32 FLOP a byte of DRAM, without the tensor cores'",
    "load_sectors_per_request": "{:.3g} sectors a global load",
    "bank_conflict_ways": "{:.3g} turns a shared memory access",
    "l1_hit_pct": "L1 hit rate {:.0f} %",
    "l2_hit_pct": "L2 hit rate {:.0f} %",
    "local_instructions": "{:.3g} local memory instructions",
    "possible_occupancy_pct": "possible occupancy {:.0f} %",
    "stack_bytes": "{:.0f} bytes of stack",
    "tensor_instructions": "{:.0f} tensor instructions",
}
"""The numbers that are worth a prompt, by the server's names."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line as the server tells it."""

    text: str
    file: str | None = None
    line: int | None = None
    candidate_line: int | None = None

    def __str__(self) -> str:
        if self.candidate_line is not None:
            return f"line {self.candidate_line}: {self.text}"
        return ": ".join(filter(None, (f"{self.file}:{self.line}" if self.file else "", self.text)))


@dataclass(frozen=True, slots=True)
class Finding:
    trouble: str
    words: str
    place: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    reason: str
    share_pct: float
    waits_for: str


@dataclass(frozen=True, slots=True)
class NcuRule:
    title: str
    text: str
    speedup_pct: float | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class HotLine:
    text: str
    samples: int
    share_pct: float
    file: str | None = None
    line: int | None = None
    candidate_line: int | None = None
    stalls: dict[str, float] = field(default_factory=dict)
    called_from: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that has no title here, by what it is."""

    what: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.what} {self.value:.4g} {self.unit}"


Numbers = dict[str, float | str | None]


@dataclass(frozen=True, slots=True)
class Digest:
    """One launch."""

    name: str
    bound: str
    why: str
    duration_us: float | None = None
    clock_ghz: float | None = None
    findings: tuple[Finding, ...] = ()
    speed_of_light: Numbers = field(default_factory=dict)
    roofline: Numbers = field(default_factory=dict)
    occupancy: Numbers = field(default_factory=dict)
    memory: Numbers = field(default_factory=dict)
    stalls: tuple[Stall, ...] = ()
    rules: tuple[NcuRule, ...] = ()
    hot_lines: tuple[HotLine, ...] = ()
    tensor_pct: float | None = None
    doubts: tuple[str, ...] = ()
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop of machine code."""

    instructions: int
    vector: int = 0
    scalar: int = 0
    spills: int = 0
    calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.vector} on vectors", f"{self.scalar} on single floats"]
        parts += [f"{self.spills} moves of vectors to or from the stack"] if self.spills else []
        parts += [f"calls {', '.join(self.calls)}"] if self.calls else []
        return f"an inner loop of {self.instructions} instructions: arithmetic {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compiler made of one kernel."""

    name: str
    registers_per_thread: float | None = None
    shared_bytes_per_block: float | None = None
    stack_bytes: float | None = None
    tensor_instructions: float | None = None
    local_instructions: float | None = None
    loops: tuple[Loop, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {', '.join([*_numbers(_fields(self)), *map(str, self.loops)])}"


@dataclass(frozen=True, slots=True)
class Launch:
    """One of several launches."""

    name: str
    bound: str
    duration_us: float | None = None
    share_pct: float | None = None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The server's report of one candidate."""

    report_id: str | None = None
    rung: str = "counters"
    digest: Digest | None = None
    static: tuple[Compiled, ...] = ()
    notes: tuple[str, ...] = ()
    kernels: tuple[Launch, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """The server's word on one candidate; `report` is there where it was profiled."""

    status: str
    log: str = ""
    report: KernelReport | None = None


def profile(answer: ProfileAnswer) -> Profile:
    """The words that prompts and people get."""
    report = answer.report
    if report is None:
        said = next(iter(answer.log.strip().splitlines()[::-1]), "it gave no reason")
        return Profile("none", "unknown", f"not profiled ({answer.status.replace('_', ' ')}): {said}")
    if report.digest is None:
        return Profile(
            report.rung,
            "unknown",
            next(iter(report.notes), "no counters"),
            metrics=tuple(map(str, report.static)),
        )
    return _told(report, report.digest)


def _told(report: KernelReport, found: Digest) -> Profile:
    clock = f"{found.clock_ghz:.2f} GHz, " if found.clock_ghz is not None else ""
    time = [f"{found.duration_us:,.1f} us at {clock}the profiler's clock"] if found.duration_us is not None else []
    groups = (
        found.speed_of_light | {"tensor_pct": found.tensor_pct},
        found.roofline,
        found.occupancy,
        found.memory,
    )
    numbers = [text for group in groups for text in _numbers(group)]
    return Profile(
        rung=report.rung,
        bound=found.bound,
        why="; ".join((found.why, *found.doubts)),
        troubles=tuple(finding.trouble for finding in found.findings),
        findings=tuple(f"{f.words}{f' ({f.place})' if f.place else ''}" for f in found.findings),
        stalls=tuple(f"{s.share_pct:.0f} % {s.reason}: waiting for {s.waits_for}" for s in found.stalls),
        rules=tuple(_rule(rule) for rule in found.rules),
        hot_lines=tuple(_hot(line) for line in found.hot_lines),
        metrics=(f"longest kernel: {found.name}", *time, *numbers, *map(str, found.counters)),
        report=report.report_id,
        launches=tuple(map(_launch, report.kernels)),
        unit=_unit(found),
        hot_spots=tuple(_spot(line) for line in found.hot_lines if line.candidate_line is not None),
    )


def _unit(found: Digest) -> str | None:
    """The busiest unit of the kind that binds."""
    unit = found.speed_of_light.get(f"{found.bound}_unit")
    return unit if isinstance(unit, str) else None


def _launch(launch: Launch) -> str:
    time = "" if launch.duration_us is None else f", {launch.duration_us:,.1f} us"
    share = "" if launch.share_pct is None else f", {launch.share_pct:.0f} % of all launches"
    return f"{launch.name}{time}{share}, bound: {launch.bound}"


def _numbers(group: Numbers) -> Iterator[str]:
    for name, text in TITLES.items():
        value = group.get(name)
        if isinstance(value, int | float):
            yield text.format(value)


def _fields(kernel: Compiled) -> Numbers:
    return {name: getattr(kernel, name) for name in Compiled.__dataclass_fields__}


def _rule(rule: NcuRule) -> str:
    scope = {"global": "of the time", "local": "of one unit's"}.get(rule.scope or "", "")
    promise = f" (up to {rule.speedup_pct:.0f} % {scope})" if rule.speedup_pct is not None else ""
    return f"{rule.title}{promise}: {rule.text}"


def _spot(line: HotLine) -> HotSpot:
    return HotSpot(line.candidate_line or 0, line.share_pct, _waits(line))


def _waits(line: HotLine) -> str:
    return ", ".join(f"{reason} {share:.0f} %" for reason, share in line.stalls.items())


def _hot(line: HotLine) -> str:
    place = SourceLine(line.text, line.file, line.line, line.candidate_line)
    waits = _waits(line)
    caller = f", inlined at {line.called_from}" if line.called_from else ""
    return f"{line.share_pct:.0f} % of samples at {place}{caller}{f' [{waits}]' if waits else ''}"
