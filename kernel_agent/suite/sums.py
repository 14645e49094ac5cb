"""What the rows of a suite come to: how many are right and how fast, in all and by level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_agent.suite.types import Row

THRESHOLDS = (0.8, 1.0, 1.05, 1.5, 2.0)
"""The p of fast_p."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed-ups against one baseline. `fast` is KernelBench's fast_p by p: the share of all problems whose kernel is
    right and more than p times as fast.

    `over_all` is the geometric mean over the problems that have a number; where there is no kernel it is that of the
    original. `over_correct` is that of the kernels alone; `measured` is how many problems have a number.
    """

    fast: Mapping[str, float]
    over_all: float | None
    over_correct: float | None
    measured: int


@dataclass(frozen=True, slots=True)
class Sums:
    """Some problems of a suite together. `covered` are those for which a kernel was judged at all, `correct` those with
    one that is right; `compile` is torch.compile's own speed over eager PyTorch, in each problem's fastest mode.

    Dollars are None where the price of any model that was asked is not known.
    """

    problems: int
    status: Mapping[str, int]
    correct: int
    covered: int
    eager: Speed
    versus_compile: Speed
    compile: Speed
    confirmed: int
    held: int
    evaluations: int
    tokens: int
    dollars: float | None
    minutes: float
    authorship: Mapping[str, int] = field(default_factory=dict)


def sums(rows: Sequence[Row]) -> Sums:
    """All of them together; a problem that has not ended yet counts as one without a kernel."""
    again = [row.held for row in rows if row.held is not None]
    dollars = [row.dollars for row in rows]
    return Sums(
        problems=len(rows),
        status=dict(Counter(row.status for row in rows)),
        correct=sum(row.correct for row in rows),
        covered=sum(row.evaluations > 0 for row in rows),
        eager=_speed([(row.correct, over_eager(row)) for row in rows]),
        versus_compile=_speed([(row.correct, over_compile(row)) for row in rows]),
        compile=_speed([(compiled is not None, compiled) for compiled in map(compile_over_eager, rows)]),
        confirmed=len(again),
        held=sum(again),
        evaluations=sum(row.evaluations for row in rows),
        tokens=sum(row.tokens for row in rows),
        dollars=None if None in dollars else math.fsum(one for one in dollars if one is not None),
        minutes=math.fsum(row.minutes for row in rows),
        authorship=dict(Counter(row.authorship or "unknown" for row in rows if row.correct)),
    )


def by_level(rows: Sequence[Row]) -> dict[str, Sums]:
    """The sums of each level, which is the folder that an id begins with; nothing where all have the same one."""
    levels: dict[str, list[Row]] = {}
    for row in rows:
        levels.setdefault(level(row.problem), []).append(row)
    return {name: sums(levels[name]) for name in sorted(levels)} if len(levels) > 1 else {}


def level(problem: str) -> str:
    """The folder that a problem's id begins with; empty where there is none."""
    folder, slash, _ = problem.partition("/")
    return folder if slash else ""


def over_eager(row: Row) -> float | None:
    """The speed-up over eager PyTorch: of the original, which stands wherever there is no kernel, it is 1."""
    return (row.speedup.median if row.speedup else None) if row.correct else 1.0


def over_compile(row: Row) -> float | None:
    """The speed-up over torch.compile; of the original the ratio of their times."""
    if row.correct:
        return row.versus_compile.median if row.versus_compile else None
    return row.compile_us / row.eager_us if row.compile_us and row.eager_us else None


def compile_over_eager(row: Row) -> float | None:
    """How much faster than eager PyTorch the fastest mode of torch.compile is."""
    return row.eager_us / row.compile_us if row.compile_us and row.eager_us else None


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """None of none."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _speed(found: Sequence[tuple[bool, float | None]]) -> Speed:
    numbers = [ratio for _, ratio in found if ratio]
    right = [ratio for correct, ratio in found if correct and ratio]
    return Speed(
        {f"{p:g}": sum(ratio > p for ratio in right) / len(found) if found else 0.0 for p in THRESHOLDS},
        geometric_mean(numbers),
        geometric_mean(right),
        len(numbers),
    )
