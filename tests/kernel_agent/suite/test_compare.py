"""Two suites of made-up rows side by side."""

import pytest

from kernel_agent.suite.compare import Change, account, bootstrapped, changes, compare, sign_test
from kernel_agent.suite.types import Row
from tests.support.suite_rows import kernel, original


def test_a_kernel_is_faster_only_where_the_intervals_lie_apart() -> None:
    before = [kernel("a", 2.0), kernel("b", 2.0), kernel("c", 2.0)]
    found = compare(before, [kernel("a", 2.1), kernel("b", 2.01), kernel("c", 1.9)])
    assert [pair.change for pair in found.pairs] == [Change.FASTER, Change.NOISE, Change.SLOWER]


def test_kernels_are_gained_and_lost() -> None:
    found = compare([original("a"), kernel("b", 2.0), original("c")], [kernel("a", 3.0), original("b"), original("c")])
    assert [pair.change for pair in found.pairs] == [Change.GAINED, Change.LOST, Change.SAME]
    assert [pair.ratio for pair in found.pairs] == [3.0, 0.5, 1.0]
    assert (found.correct.up, found.correct.down) == (1, 1)


def test_problems_of_one_suite_alone_are_named_and_count_in_no_sum() -> None:
    found = compare([kernel("a", 2.0), kernel("gone", 9.0)], [kernel("a", 2.0), kernel("new", 9.0)])
    assert (found.only_before, found.only_after) == (("gone",), ("new",))
    assert found.ratio and found.ratio.median == pytest.approx(1.0)
    said = list(account(found))
    assert "only in A: gone" in said and "only in B: new" in said


def test_kernels_of_unlike_devices_are_not_compared() -> None:
    found = compare([kernel("a", 2.0)], [kernel("a", 9.0, device="another card")])
    assert found.pairs[0].change is Change.UNLIKE and found.pairs[0].ratio is None and found.ratio is None


def test_a_gain_everywhere_is_more_than_noise_and_one_in_a_few_is_not() -> None:
    before = [kernel(str(n), 2.0) for n in range(20)]
    everywhere = compare(before, [kernel(str(n), 2.2) for n in range(20)])
    assert not everywhere.is_noise and not everywhere.speed.is_noise and everywhere.speed.p < 1e-5
    mixed = compare(before, [kernel(str(n), 2.2 if n % 2 else 1.8) for n in range(20)])
    assert mixed.is_noise and mixed.speed.is_noise


def test_the_bootstrap_gives_the_same_interval_each_time() -> None:
    ratios = [1.0, 1.3, 0.9, 1.7, 1.1]
    first = bootstrapped(ratios)
    assert first and first == bootstrapped(ratios) and first.low < first.median < first.high
    assert bootstrapped([]) is None


def test_the_sign_test_is_the_exact_one() -> None:
    assert sign_test(0, 0).p == 1.0 and sign_test(5, 5).p == 1.0
    assert sign_test(5, 0).p == pytest.approx(2 / 32) and sign_test(1, 8).p == pytest.approx(2 * 10 / 512)
    assert sign_test(5, 0).is_noise and not sign_test(6, 0).is_noise


def test_an_account_says_by_which_test_and_tables_what_changed() -> None:
    found = compare([kernel("a", 2.0), Row("b", "failed")], [kernel("a", 4.0), kernel("b", 2.0)])
    assert [line[:3] for line in changes(found).lines] == [
        ("a", "faster", "2.00x [1.98, 2.02]"),
        ("b", "gained", "failed"),
    ]
    assert list(account(found))[:3] == [
        "B over A: 2.00x, the geometric mean over 2 problems with the interval of a bootstrap over them: within noise",
        "kernels gained and lost: 1 and 0, by a sign test p = 1: within noise",
        "kernels faster and slower, their intervals apart: 1 and 0, by a sign test p = 1: within noise",
    ]
