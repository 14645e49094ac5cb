"""Timing statistics: medians, distribution-free intervals, and when to stop sampling."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CONFIDENCE = 0.95
QUANTILE = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with the bounds of its 95 % confidence interval."""

    low: float
    median: float
    high: float

    @property
    def width(self) -> float:
        """Width relative to the median."""
        return (self.high - self.low) / self.median


def median_interval(values: Sequence[float]) -> Interval:
    """The sample median and the exact binomial interval of the population median from order statistics.

    The interval [x(k), x(n+1-k)] covers with probability 1 - 2 P(Bin(n, 1/2) < k) (Conover, Practical Nonparametric
    Statistics, 3.2); the largest k that keeps 95 % is taken. Under six samples none does, so it is the range.
    """
    ordered = sorted(values)
    n = len(ordered)
    k = max(_rank(n), 1)
    return Interval(ordered[k - 1], statistics.median(ordered), ordered[n - k])


def _rank(n: int) -> int:
    tail, k = 0.0, 0
    while k <= n // 2:
        tail += math.comb(n, k) / 2**n
        if 2 * tail > 1 - CONFIDENCE:
            break
        k += 1
    return k


def paired(reference: Sequence[float], candidate: Sequence[float], apart_us: float = 0.0) -> Interval:
    """Speed-up of the candidate: the median of reference over candidate, block by block in the order they ran.

    The interval is widened by `apart_us` of either side: independent errors, of which a ratio takes the relative ones,
    add in quadrature.
    """
    inside = median_interval([r / c for r, c in zip(reference, candidate, strict=True)])
    relative = apart_us * math.hypot(1 / statistics.median(reference), 1 / statistics.median(candidate))
    outside = QUANTILE * relative * inside.median
    low, high = math.hypot(inside.median - inside.low, outside), math.hypot(inside.high - inside.median, outside)
    return Interval(max(0.0, inside.median - low), inside.median, inside.median + high)


def verdict(speedup: Interval, tie: float) -> Literal["faster", "slower", "inconclusive"]:
    """Decided only where the whole interval lies outside 1 +- tie."""
    if speedup.low > 1 + tie:
        return "faster"
    if speedup.high < 1 - tie:
        return "slower"
    return "inconclusive"
