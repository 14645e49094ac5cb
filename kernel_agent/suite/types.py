"""A suite's values: its problems, what became of each, and what its table says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_agent import errors
from kernel_agent.errors import KernelAgentError, Unavailable, UsageError
from kernel_agent.problem.from_source import Shapes
from kernel_agent.run.types import Description, Evaluation, Interval
from kernel_agent.text import line

PROBLEMS = "problems"
"""The folder of a suite that holds a run directory for each problem, by the problem's id."""


@dataclass(frozen=True, slots=True)
class SuiteProblem:
    """A problem of a suite. `id` is a relative path such as `level1/19_ReLU`, and no other problem's.

    `code` is its source with the files that it imports; `shapes` are the input shapes where they do not stand in it;
    `notes` are what its collection says of it, such as that it is degenerate.
    """

    id: str
    code: str
    shapes: tuple[Shapes, ...] = ()
    notes: tuple[str, ...] = ()

    def directory(self, suite: Path) -> Path:
        """Where its run is kept."""
        return suite / PROBLEMS / self.id


class State(StrEnum):
    """How far a suite is with a problem."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a problem so far; `reason` and `fault` (the exception's name) say why it failed, `stopped` why its
    search ended, `spent` whether a budget ended it. `minutes` and `dollars` are what it was granted; None is no limit.
    `under_way_minutes` is how long it was under way until it failed: a run that was never described records none.
    """

    problem: str
    state: State
    reason: str | None = None
    fault: str | None = None
    stopped: str | None = None
    spent: bool = False
    minutes: float | None = None
    dollars: float | None = None
    under_way_minutes: float = 0.0

    @property
    def stays(self) -> bool:
        """Whether it failed by its input, which fails a second time too."""
        fault = getattr(errors, self.fault or "", None)
        return self.state is State.FAILED and isinstance(fault, type) and issubclass(fault, UsageError)


def failure(outcomes: Sequence[Outcome]) -> KernelAgentError | None:
    """What is to be raised where every problem of a suite failed: UsageError where each input is at fault, Unavailable
    where another try may come to something. None where one did not fail."""
    if not outcomes or any(one.state is not State.FAILED for one in outcomes):
        return None
    first = next((one for one in outcomes if not one.stays), outcomes[0])
    count = "The one problem" if len(outcomes) == 1 else f"All {len(outcomes)} problems"
    kind = UsageError if first.stays else Unavailable
    return kind(f"{count} failed; {first.problem}: {line(first.reason or '')}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's word on a kernel made elsewhere: in fresh processes, against eager PyTorch and the fastest mode of
    torch.compile. `file` is where it lay, `source_id` the digest of its text; `description` is without the graph."""

    problem: str
    file: str
    source_id: str
    target: str
    description: Description
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A delivered file judged once more; `why_not` says why its kernel did not hold, and is empty where it did."""

    problem: str
    source_id: str
    why_not: str
    evaluation: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A problem's line of the table. Times are microseconds, speed-ups paired ratios with 95 % intervals.

    `status` is `improved`, `no_improvement`, `original_delivered` (the templates have no kernel for it), `failed`,
    `running` or `waiting`, and in suites of before `not_covered`; `speedup` is against
    eager PyTorch, `versus_compile` against the fastest mode of torch.compile (`compile_mode`), which took `compile_us`;
    `held` is whether `suite confirm` found the kernel right and faster again, and `why_not_held` why it did not.
    `correct` is whether there is a kernel, and no original in its place, that the judge found right; `reached` is the
    share of the limit.
    """

    problem: str
    status: str
    reason: str | None = None
    authorship: str | None = None
    kernel_us: float | None = None
    eager_us: float | None = None
    compile_us: float | None = None
    compile_mode: str | None = None
    limit_us: float | None = None
    speedup: Interval | None = None
    versus_compile: Interval | None = None
    evaluations: int = 0
    tokens: int = 0
    dollars: float | None = None
    minutes: float = 0.0
    granted_minutes: float | None = None
    device: str | None = None
    held: bool | None = None
    notes: tuple[str, ...] = field(default=())
    correct: bool = False
    reached: Interval | None = None
    target: str | None = None
    why_not_held: str | None = None


def unique(problems: tuple[SuiteProblem, ...]) -> tuple[SuiteProblem, ...]:
    """The problems as they are. Raises UsageError, which names it, where two have one id."""
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise UsageError(f"Two problems of the suite are called {problem.id}: rename one of their files.")
        seen.add(problem.id)
    return problems
