"""What is made of PyTorch's own times."""

from ncu_server.judge.baselines import graphs_lose, longest, narrower, uncertain
from ncu_server.wire import evaluation
from ncu_server.worker.answers import LaunchTime


def row(name: str, low: float, high: float) -> evaluation.BaselineResult:
    timing = evaluation.Timing(median_us=100.0, low_us=low, high_us=high, samples=6, cache="cold", warm_us=90.0)
    return evaluation.BaselineResult(name=name, timing=timing, speedup=None, kernels=[])


def test_an_uncertain_time_is_named_and_the_better_of_two_sittings_kept_whole() -> None:
    busy = {"eager": row("eager", 70.0, 160.0), "compile": row("compile", 99.0, 101.0)}
    quiet = {"eager": row("eager", 95.0, 105.0), "compile": row("compile", 97.0, 103.0)}
    assert uncertain(busy) == {"eager": "the time of eager is uncertain: 70 to 160 us"}
    assert uncertain(quiet) == {}
    assert narrower(busy, quiet) == narrower(quiet, busy) == quiet


def test_the_longest_launches_are_named_in_their_order_and_the_others_counted() -> None:
    rows: list[LaunchTime] = [{"name": f"k{at}" * 200, "us": float(at % 4), "launches": 2} for at in range(8)]
    told = evaluation.BaselineResult(**row("compile", 99.0, 101.0).model_dump() | longest(rows, 4))
    assert [one.name[:2] for one in told.launches] == ["k2", "k3", "k6", "k7"]
    assert max(len(one.name) for one in told.launches) == 200
    assert told.launches_left_out == evaluation.LaunchResult(name="4 others", us=2.0, launches=8)
    assert longest(rows[:4], 4)["launches_left_out"] is None


def test_a_graph_that_copies_longer_than_it_saves_is_not_timed() -> None:
    """A product of 4096 x 4096 took 2,619 us on an H200 without a graph and 2,736 us with one."""
    assert "takes 63 us and saves less" in (graphs_lose(2 * 4096 * 4096 * 4, 1, 4258.0) or "")
    resnet = 10 * 3 * 224 * 224 * 4
    assert graphs_lose(resnet, 60, 4258.0) is None
