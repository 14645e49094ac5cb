"""The nouns of the thinking side. They are values: nothing here reads, writes or calls."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from kernel_agent.run.measured import Chip, Launch
from kernel_agent.run.precision import ErrorUnit, Way
from kernel_agent.run.regions import Regions

JSON = Mapping[str, Any]
Comparison = Literal["faster", "slower", "inconclusive"]


def digest(*parts: object) -> str:
    """The first 12 hex digits of the SHA-256 of the parts, each closed by a zero byte."""
    h = hashlib.sha256()
    for part in parts:
        h.update(str(part).encode("utf-8", "surrogatepass") + b"\0")
    return h.hexdigest()[:12]


class Status(StrEnum):
    """How the judge found a candidate. Only the kernel's own faults are here; ours are exceptions.

    A poor build compiles, and the compiler's news is bad: it goes back once before anything runs, and is no verdict.
    """

    REJECTED = "rejected"
    BUILD_ERROR = "build_error"
    POOR_BUILD = "poor_build"
    RUN_ERROR = "run_error"
    TIMEOUT = "timeout"
    WRONG = "wrong"
    SUSPECT = "suspect"
    PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Problem:
    """PyTorch source in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) and the target to write for."""

    name: str
    source: str
    target: str

    @property
    def id(self) -> str:
        return digest(self.name, self.source, self.target)


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with its 95 % confidence interval."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of one call in microseconds: the median and its 95 % interval over `samples` blocks.

    `cache` says where the inputs lay (`cold` or `resident`), `warm_us` is the time with the same inputs again.
    """

    median_us: float
    low_us: float
    high_us: float
    samples: int
    cache: str | None = None
    warm_us: float | None = None


def baseline_title(name: str) -> str:
    """What a baseline is called before people and models."""
    return {"eager": "eager PyTorch", "compile": "torch.compile"}.get(name, f"torch.compile {name}")


def baseline_titles(names: Iterable[str]) -> str:
    """The same of several."""
    return ", ".join(map(baseline_title, names))


@dataclass(frozen=True, slots=True)
class Versus:
    """A candidate against one baseline (`eager`, a mode of torch.compile): its time and the paired speed-up.

    `verdict` is the server's, as the interval lies to its device's tie band; None in records of before.
    """

    baseline: str
    timing: Timing
    speedup: Interval
    verdict: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What a compiler said of a line, `candidate_line` in the candidate; `notes` are the rows that it added."""

    severity: Literal["error", "warning", "remark"]
    text: str
    file: str | None = None
    line: int | None = None
    source: str | None = None
    candidate_line: int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line is not None else ""
        return f"{place}{self.severity}: {self.text}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the judge says of one source. `error` is in units of the reference's own rounding error in full float32, of
    which so many are `allowed`; `arithmetic` is the coarsest whose rounding explains the errors; `held` says of which
    output on which inputs the error is, empty in runs of before."""

    status: Status
    log: str
    timing: Timing | None = None
    versus: tuple[Versus, ...] = ()
    error: float | None = None
    provenance: JSON = field(default_factory=dict)
    stages: JSON = field(default_factory=dict)
    """Where the judge's time went, in seconds by the stage's name."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """The errors of compilers, which stand in the log too; none in runs of before."""
    allowed: float = 64.0
    arithmetic: str | None = None
    held: str = ""

    def __post_init__(self) -> None:
        if (self.timing is not None) != (self.status is Status.PASSED):
            raise ValueError("an evaluation carries a timing exactly when it passed")

    def against(self, baseline: str) -> Interval | None:
        """The paired speed-up against `baseline`, or None where it was not measured."""
        return next((v.speedup for v in self.versus if v.baseline == baseline), None)

    @property
    def comparison(self) -> Comparison | None:
        """The server's verdict against eager PyTorch; None where there is none."""
        return next((v.verdict for v in self.versus if v.baseline == "eager"), None)

    @property
    def compiled(self) -> Versus | None:
        """Against the fastest mode of torch.compile that was measured beside it."""
        modes = (v for v in self.versus if v.baseline != "eager")
        return min(modes, key=lambda v: v.timing.median_us, default=None)

    @property
    def speedup(self) -> float | None:
        """The median paired speed-up against eager PyTorch."""
        found = self.against("eager")
        return found.median if found else None


@dataclass(frozen=True, slots=True)
class HotSpot:
    """A line of the candidate, counted from 1, with its share of the samples in percent and what its warps wait for."""

    line: int
    share_pct: float
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profiler says of one source, in words. `rung` is what they were read off: counters, timeline, static.

    `bound` is `unknown` where it could not say; `why` then says why not; `unit` is the busiest one, such as `L2`, where
    one binds. `troubles` are the server's names of what is wrong, `findings` their words; `report` is the server's name
    of the report. All of it is of the longest launch; `launches` tell of each where there are several.
    """

    rung: str
    bound: str
    why: str
    troubles: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    stalls: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    hot_lines: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    report: str | None = None
    launches: tuple[str, ...] = ()
    unit: str | None = None
    hot_spots: tuple[HotSpot, ...] = ()
    """The hot lines that stand in the candidate; none in runs of before."""


@dataclass(frozen=True, slots=True)
class Idea:
    """One transformation of one parent. `change` holds a template's genes, or None where a model writes the code.

    `predicted_gain` is the promise as the model wrote it, `predicted` the factor over the parent that it comes to (see
    kernel_agent.run.gain), None where it is none.
    """

    id: str
    round: int
    parent: str
    title: str
    reasoning: str = ""
    change: JSON | None = None
    passages: tuple[str, ...] = ()
    second_parent: str | None = None
    """The trial that the parent is crossed with, where there is one."""
    bottleneck: str = ""
    transformation: str = ""
    predicted_gain: str = ""
    risk: str = ""
    predicted: float | None = None

    @property
    def account(self) -> str:
        """All but the title, for a prompt: each part of a model's idea under its name, a template's reasoning alone.

        A line within a part that begins as a name does is indented.
        """
        if not self.transformation:
            return self.reasoning
        parts = (
            ("Bottleneck", self.bottleneck),
            ("Transformation", self.transformation),
            ("Reasoning", self.reasoning),
            ("Predicted gain", self.predicted_gain),
            ("Risk", self.risk),
        )
        begins = re.compile(rf"^(?=(?:{'|'.join(name for name, _ in parts)}): )", re.MULTILINE)
        return "\n".join(f"{name}: {begins.sub('  ', text)}" for name, text in parts if text)


@dataclass(frozen=True, slots=True)
class Trial:
    """A node of the tree: one source written for an idea. Step 0 is its first writing, later ones repair or sweep.

    The PyTorch reference is the trial whose idea is None.
    """

    idea: str | None
    attempt: int
    step: int
    parent: str | None
    source: str
    tuned: tuple[tuple[str, int | float | str | bool], ...] = ()
    """What a sweep has set in the parent's source: names of declared tunables with their values."""

    @property
    def id(self) -> str:
        return digest(self.idea, self.attempt, self.step)

    @property
    def source_id(self) -> str:
        """Evaluations are keyed by this, so that the same source is judged once."""
        return _source_id(self.source)


@lru_cache(maxsize=1 << 16)
def _source_id(source: str) -> str:
    return digest(source)


@dataclass(frozen=True, slots=True)
class Device:
    """What the server measured of the machine it judges on."""

    target: str
    name: str
    arch: str
    threads: int
    copy_gbps: float | None = None
    features: tuple[str, ...] = ()
    build_arch: str | None = None
    """What CUDA kernels are built for there, such as `9.0a`; None in runs of before, and where nothing is built so."""
    compiles_beside: bool = False
    """Whether modes of torch.compile can be timed there while other calls go on."""
    peaks: JSON = field(default_factory=dict)
    """What it was measured to reach, by the server's names; nothing in runs of before."""
    chip: Chip = field(default_factory=Chip)
    """Nothing of it in runs of before, and on a CPU."""
    uuid: str | None = None
    host: str | None = None
    """Which of its kind it is, and on which machine."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A mode of torch.compile: its time, None where it is not timed (`why`: what follows its name in a sentence), and
    what it launches, in order, by the names that Inductor gives and with times; `notes` are the server's."""

    name: str
    timing: Timing | None
    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """What the server knows of a problem: traced graph (JSON), counted work, the device, the baselines' times."""

    device: Device
    graph: JSON | None
    graph_error: str | None
    flops: float
    bytes: float
    limit_us: float | None
    baselines: Mapping[str, Timing]
    notes: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    """What torch.compile launches, in order: its kernels, named after what each fuses, and library calls."""
    contract: JSON | None = None
    """What the problem's calls take and give (see kernel_agent.delivery.contract); None in runs of before."""
    limit_rate: str | None = None
    """The measured rate that made the limit, in words; None in runs of before."""
    arithmetic: str | None = None
    """What shows in the reference's own error: `float32`, `tf32` where torch lets cuDNN take it; None where no floats
    come out, and in runs of before."""
    unmeasured: tuple[str, ...] = ()
    """Modes of torch.compile whose times are still to come."""
    precision: tuple[ErrorUnit, ...] = ()
    ways: tuple[Way, ...] = ()
    """How a GPU may compute the products, where there are some; none of either in runs of before."""
    launches: Mapping[str, tuple[Launch, ...]] = field(default_factory=dict)
    """What modes of torch.compile launch, in order, with times; nothing in runs of before."""
    moving_us: float | None = None
    """What moving the counted bytes takes at the measured rates of reading and writing; None in runs of before."""
    regions: Regions | None = None
    """How the templates cut the module; None where they were not asked, and in runs of before."""

    def joined(self, baseline: Baseline) -> Description:
        """The same with what is known of one more mode."""
        timed = {baseline.name: baseline.timing} if baseline.timing else {}
        return replace(
            self,
            baselines={**self.baselines, **timed},
            compiled=self.compiled or baseline.kernels,
            launches={**self.launches, **({baseline.name: baseline.launches} if baseline.launches else {})},
            notes=(*self.notes, *(note for note in baseline.notes if note not in self.notes)),
            unmeasured=tuple(name for name in self.unmeasured if name != baseline.name),
        )

    @property
    def bytes_us(self) -> float | None:
        """What moving the counted bytes takes at the measured rates, in microseconds: a copy's in runs of before."""
        if self.moving_us is not None:
            return self.moving_us
        return self.bytes / self.device.copy_gbps / 1e3 if self.device.copy_gbps else None

    def reached(self, time_us: float) -> float | None:
        """The share of the limit that a time reaches. Exact algebra can beat a limit of operations: what does is held
        to the bytes alone."""
        limit = self.admissible_us
        if limit and time_us < limit:
            limit = self.bytes_us or limit
        return limit / time_us if limit else None

    @property
    def admissible(self) -> Way | None:
        """Of the ways to compute products that are exact enough, the one that can be fastest."""
        inside = [way for way in self.ways if way.fits == "inside" and way.limit_us]
        return min(inside, key=lambda way: way.limit_us or 0.0, default=None)

    @property
    def admissible_us(self) -> float | None:
        """The limit of the fastest admissible way, else the server's."""
        return self.admissible.limit_us if self.admissible else self.limit_us

    @property
    def to_beat(self) -> str:
        """The name of the fastest baseline that is known."""
        return min(self.baselines, key=lambda name: self.baselines[name].median_us)

    @property
    def rivals(self) -> tuple[str, ...]:
        """Eager, and the fastest mode of torch.compile where one runs: what a winner is held against."""
        modes = {name: timing.median_us for name, timing in self.baselines.items() if name != "eager"}
        return ("eager", *sorted(modes, key=modes.__getitem__)[:1])
