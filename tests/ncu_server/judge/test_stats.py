import math
import random

import pytest

from ncu_server.judge.stats import Interval, median_interval, paired, verdict


def test_the_interval_covers_the_true_median_about_95_times_in_100() -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(2000):
        i = median_interval([rng.lognormvariate(0, 1) for _ in range(25)])
        hits += i.low <= 1.0 <= i.high
    assert 0.94 < hits / 2000 < 0.99


@pytest.mark.parametrize(("n", "rank"), [(5, 1), (6, 1), (9, 2), (25, 8), (100, 40)])
def test_the_ranks_are_those_of_the_binomial_table(n: int, rank: int) -> None:
    i = median_interval([float(x) for x in range(1, n + 1)])
    assert (i.low, i.high) == (rank, n + 1 - rank)


def test_pairing_removes_drift_that_both_sides_share() -> None:
    drift = [1 + 0.5 * i / 20 for i in range(20)]
    i = paired([2 * d for d in drift], drift)
    assert (i.low, i.median, i.high) == (2, 2, 2)


def test_what_differs_between_processes_widens_ratios_of_short_times_alone() -> None:
    def width(us: float) -> float:
        return paired([us] * 9, [us] * 9, apart_us=0.1).width

    assert width(10) == pytest.approx(2 * 1.96 * math.sqrt(2) * 0.01, rel=1e-3)
    assert width(1000) == pytest.approx(width(10) / 100)
    noisy = paired([9.0, 10.0, 11.0] * 3, [10.0] * 9, apart_us=0.1)
    assert noisy.low == pytest.approx(1 - math.hypot(0.1, width(10) / 2))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.02, 1.1, "faster"), (0.8, 0.98, "slower"), (1.005, 1.1, "inconclusive"), (0.9, 1.2, "inconclusive")],
)
def test_a_verdict_needs_the_whole_interval_outside_the_tie(low: float, high: float, expected: str) -> None:
    assert verdict(Interval(low, (low + high) / 2, high), 0.01) == expected
