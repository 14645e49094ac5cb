"""Two suites side by side: what changed, and whether it is more than noise."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernel_agent.run.types import Interval
from kernel_agent.suite.sums import geometric_mean, over_eager
from kernel_agent.suite.table import Grid, times
from kernel_agent.suite.types import Row

RESAMPLES, SEED, CONFIDENCE = 2_000, 0, 0.95
FEWEST = 6
"""Problems under which no split of signs is surprising at 95 %; resampling fewer says no more."""


class Change(StrEnum):
    """What became of a problem from A to B. Of two kernels one is faster where their intervals lie apart."""

    GAINED = "gained"
    LOST = "lost"
    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "within noise"
    SAME = "no kernel in either"
    UNLIKE = "other device"


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem in both suites. `ratio` is B's speed-up over eager PyTorch by A's."""

    problem: str
    change: Change
    before: Row
    after: Row
    ratio: float | None


@dataclass(frozen=True, slots=True)
class Sign:
    """How many problems went up and how many down; `p` is the two-sided exact sign test's: the probability of a split
    at least as uneven where either is as likely."""

    up: int
    down: int
    p: float

    @property
    def is_noise(self) -> bool:
        return self.p > 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two suites. `ratio` is the geometric mean of B's speed-ups by A's over all problems of both, the original
    counting as 1, with the 95 % interval of a bootstrap over problems; None where no problem is in both."""

    pairs: tuple[Pair, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    ratio: Interval | None
    correct: Sign
    speed: Sign

    @property
    def is_noise(self) -> bool:
        """Whether the mean's interval holds 1, or stands on too few problems to say anything."""
        few = sum(pair.ratio is not None for pair in self.pairs) < FEWEST
        return self.ratio is None or few or self.ratio.low <= 1 <= self.ratio.high


def changes(found: Comparison) -> Grid:
    """A line for each problem that changed by more than noise, or cannot be compared."""
    told = (pair for pair in found.pairs if pair.change not in (Change.NOISE, Change.SAME))
    return Grid(
        ("problem", "change", "A over eager", "B over eager", "B over A"),
        tuple(
            (
                pair.problem,
                str(pair.change),
                _kernel(pair.before),
                _kernel(pair.after),
                f"{pair.ratio:.2f}x" if pair.ratio else "",
            )
            for pair in told
        ),
    )


def account(found: Comparison) -> Iterator[str]:
    """What the two come to, and by which test it is more than noise."""
    if found.ratio:
        mean = f"B over A: {times(found.ratio)}, the geometric mean over {len(found.pairs)} problems"
        yield f"{mean} with the interval of a bootstrap over them: {_word(found.is_noise)}"
    tests = (
        ("kernels gained and lost", found.correct),
        ("kernels faster and slower, their intervals apart", found.speed),
    )
    for what, sign in tests:
        yield f"{what}: {sign.up} and {sign.down}, by a sign test p = {sign.p:.2g}: {_word(sign.is_noise)}"
    for change in (Change.NOISE, Change.SAME):
        if count := sum(pair.change is change for pair in found.pairs):
            yield f"{change}: {count} of {len(found.pairs)} problems"
    for suite, only in (("A", found.only_before), ("B", found.only_after)):
        if only:
            yield f"only in {suite}: {', '.join(only)}"


def _kernel(row: Row) -> str:
    return times(row.speedup) if row.correct else row.status.replace("_", " ")


def _word(is_noise: bool) -> str:
    return "within noise" if is_noise else "more than noise"


def compare(before: Sequence[Row], after: Sequence[Row]) -> Comparison:
    """The problems of both by their ids, in the order of `before`."""
    old, new = ({row.problem: row for row in rows} for rows in (before, after))
    pairs = tuple(_pair(old[name], new[name]) for name in old if name in new)
    changes = [pair.change for pair in pairs]
    return Comparison(
        pairs,
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name not in old),
        bootstrapped([pair.ratio for pair in pairs if pair.ratio is not None]),
        sign_test(changes.count(Change.GAINED), changes.count(Change.LOST)),
        sign_test(changes.count(Change.FASTER), changes.count(Change.SLOWER)),
    )


def _pair(before: Row, after: Row) -> Pair:
    return Pair(before.problem, _change(before, after), before, after, _ratio(before, after))


def _change(before: Row, after: Row) -> Change:
    if before.device and after.device and before.device != after.device:
        return Change.UNLIKE
    if before.correct != after.correct:
        return Change.GAINED if after.correct else Change.LOST
    if before.speedup is None or after.speedup is None or not after.correct:
        return Change.SAME
    if after.speedup.low > before.speedup.high:
        return Change.FASTER
    return Change.SLOWER if after.speedup.high < before.speedup.low else Change.NOISE


def _ratio(before: Row, after: Row) -> float | None:
    """None where the two are of different devices, or a time is missing."""
    if _change(before, after) is Change.UNLIKE:
        return None
    old, new = over_eager(before), over_eager(after)
    return new / old if old and new else None


def sign_test(up: int, down: int) -> Sign:
    """The exact two-sided sign test of how many went up and down; what did not change says nothing."""
    n, fewer = up + down, min(up, down)
    tail = sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n
    return Sign(up, down, min(1.0, 2 * tail))


def bootstrapped(ratios: Sequence[float]) -> Interval | None:
    """The geometric mean with the percentiles of resampled ones, always by the same seed; None of none."""
    mean = geometric_mean(ratios)
    if mean is None:
        return None
    logs, draw = [math.log(ratio) for ratio in ratios], random.Random(SEED)
    means = sorted(math.fsum(draw.choices(logs, k=len(logs))) / len(logs) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Interval(math.exp(means[cut]), mean, math.exp(means[-1 - cut]))
