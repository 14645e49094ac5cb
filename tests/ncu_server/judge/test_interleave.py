"""What is timed, and when a time is believed."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from ncu_server.judge.benchmark import AUDITS, audits
from ncu_server.judge.interleave import (
    MAX_PAIRS,
    MIN_PAIRS,
    Pace,
    Rotation,
    Samples,
    combine,
    computes_untold,
)
from ncu_server.judge.roofline import floor_us, limit
from ncu_server.targets.cpu import CpuGauge
from ncu_server.targets.target import Resolution
from ncu_server.wire.evaluation import Peaks
from ncu_server.worker.checking.effects import State
from ncu_server.worker.tensors import read, write
from ncu_server.worker.timing.devices import READ_ROW, Cpu, _peaks
from ncu_server.worker.timing.stage import Stage
from ncu_server.worker.tracing.graph import work
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server

served = pytest.mark.asyncio(loop_scope="session")
PEAKS = Peaks(copy_gbps=100.0, last_cache_bytes=1e6, fp32_tflops=1.0, tf32_tflops=4.0, bf16_tflops=8.0)
SHAPES = (
    SCALE_ADD
    + """
def get_inputs_tall():
    return [torch.randn(999, 256), torch.randn(999, 256)]
"""
)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Cpu:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Cpu()


class Noting(torch.nn.Module):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.given.append(x.clone())
        return x * 2


class Doubling(Noting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.given.append(x.clone())
        return x.mul_(2)


@contextmanager
def memory() -> Iterator[int]:
    fd = os.memfd_create("shared")
    try:
        yield fd
    finally:
        os.close(fd)


def staged(model: torch.nn.Module, cpu: Cpu, size: int, changing: Sequence[int] = ()) -> Stage:
    with memory() as fd:
        spec = write(fd, ([torch.rand(size, generator=torch.Generator().manual_seed(3)) - 0.5], {}))
        return Stage(model, cpu, read(fd, spec), spec, State(model, changing, {}))


def kept(stage: Stage) -> torch.Tensor:
    """The output of the call that the latest block kept."""
    with memory() as fd:
        (tensor,) = read(fd, stage.snapshot(fd, 0.0))
    return tensor


@pytest.mark.parametrize("group", [1, 16])
def test_every_call_of_a_block_has_values_of_its_own(cpu: Cpu, group: int) -> None:
    model = Noting()
    staged(model, cpu, 5000).block(nonce=77, count=48 // group, group=group, inputs="cold")
    assert len({x.numpy().tobytes() for x in model.given}) == 48


def test_most_calls_differ_in_nearly_all_elements_and_some_in_few(cpu: Cpu) -> None:
    model = Noting()
    staged(model, cpu, 200_000).block(nonce=77, count=40, group=1, inputs="cold")
    differing = sorted(int((a != b).sum()) for a, b in itertools.combinations(model.given, 2))
    few = [n for n in differing if n < 3000]
    assert 0 < len(few) < len(differing) / 8 and min(differing[len(few) :]) > 199_000


def test_half_of_the_kept_calls_are_like_others_that_differ_in_few_elements(cpu: Cpu) -> None:
    stage, seen = staged(Noting(), cpu, 200_000), []
    for nonce in range(10**9, 10**9 + 40 * 7919, 7919):
        stage.block(nonce=nonce, count=2, group=1, inputs="cold")
        seen.append(kept(stage).clone())
    few = max(sum(int((one != other).sum()) < 3000 for other in seen) for one in seen)
    assert 10 < few < 30


@pytest.mark.parametrize("group", [1, 16])
def test_the_kept_call_sees_the_same_values_whatever_went_before(cpu: Cpu, group: int) -> None:
    few, many = (staged(Noting(), cpu, 5000) for _ in range(2))
    few.block(nonce=5, count=2, group=1, inputs="cold")
    many.block(nonce=9, count=40, group=1, inputs="cold")
    many.block(nonce=3, count=4, group=16, inputs="warm")
    for nonce in (123456789, 987654321, 5):
        few.block(nonce=nonce, count=3, group=group, inputs="cold")
        many.block(nonce=nonce, count=5, group=group, inputs="cold")
        assert torch.equal(kept(few), kept(many))


def test_any_call_of_a_block_may_be_the_kept_one(cpu: Cpu) -> None:
    model, places = Noting(), set()
    stage = staged(model, cpu, 5000)
    for nonce in range(0, 1 << 14, 77):
        model.given.clear()
        stage.block(nonce=nonce, count=3, group=2, inputs="cold")
        (place,) = (i for i, x in enumerate(model.given) if torch.equal(x * 2, kept(stage)))
        places.add(place)
    assert places == set(range(6))


def test_unseen_draws_come_in_turn_in_the_memory_of_those_before(cpu: Cpu) -> None:
    model = Noting()
    stage = staged(model, cpu, 200_000)
    usual = {t.data_ptr() for held in stage._held for t in held}
    given = [[torch.rand(200_000) + 1], [torch.rand(200_000) - 2]]
    with memory() as fd:
        stage.take_unseen(given, write(fd, given[0]))
    stage.block(nonce=77, count=10, group=1, inputs="unseen")
    assert all(float(x.abs().max()) <= 0.5 for x in model.given[:2])
    for (first,), seen in zip(given, (model.given[2::2], model.given[3::2]), strict=True):
        nearest = first.abs().min() * first.sign()[0]
        far = (first - nearest).abs()
        assert all(bool(((x - nearest).abs() >= 0.74 * far - 1e-6).all()) for x in seen)
        assert len({x.numpy().tobytes() for x in seen}) == 4
    assert {t.data_ptr() for held in stage._held for t in held} == usual
    model.given.clear()
    stage.block(nonce=77, count=8, group=1, inputs="cold")
    assert all(float(x.abs().max()) <= 0.5 for x in model.given)


@pytest.mark.parametrize(("draws", "group"), [(3, 1), (3, 3), (1, 4)])
def test_unseen_draws_that_never_change_are_visited_as_often_each(cpu: Cpu, draws: int, group: int) -> None:
    model = Noting()
    stage = staged(model, cpu, 5000)
    given = [[torch.arange(5000.0) + n] for n in range(draws)]
    with memory() as fd:
        stage.take_unseen(given, write(fd, given[0]))
    stage.block(nonce=5, count=12 // group, group=group, inputs="unseen")
    first = max(draws, group)
    assert [float(x[0]) for x in model.given[first:]] == [n % draws for n in range(first, 12)]


@pytest.mark.parametrize(("calls", "spare", "untold"), [(128, 25.0, False), (1, 3000.0, False), (100, 800.0, True)])
def test_a_candidate_of_few_calls_answers_for_no_more_than_a_reference_s_block(
    calls: int, spare: float, untold: bool
) -> None:
    pace, spares = {"eager": Pace(168, 1), "candidate": Pace(calls, 1)}, {"eager": [14.0] * 3, "candidate": [spare] * 3}
    assert computes_untold(spares, "candidate", 142.0, pace) is untold


def test_a_call_that_changes_its_input_gets_it_back(cpu: Cpu) -> None:
    model = Doubling()
    staged(model, cpu, 5000, changing=[0]).block(nonce=1, count=40, group=1, inputs="cold")
    assert max(float(x.max()) for x in model.given) <= 2


class Look(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(1000, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        return x[:, :4].sum() + self.table[at].sum(1)


def test_work_counts_what_is_read_and_written() -> None:
    counted = work(Look(), ([torch.rand(7, 100), torch.tensor([3, 5]), torch.rand(10_000)], {}))
    assert counted["read_bytes"] == 7 * 4 * 4 + 2 * 8 * 4 + 2 * 8
    assert counted["written_bytes"] == 2 * 4


class Doing(torch.nn.Module):
    def __init__(self, forward: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(100, 8))
        self._forward = forward

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self._forward(self.weight, *given)


@pytest.mark.parametrize(
    ("forward", "read"),
    [
        (lambda w, x, at: x * w.mean(), 4096),
        (lambda w, x, at: torch.nn.functional.interpolate(x[None, None], scale_factor=0.25), 256),
        (lambda w, x, at: torch.nn.functional.embedding_bag(at[None], x), 3 * 128 + 8 * 3),
        (lambda w, x, at: x.index_copy_(0, at, w[:3].repeat(1, 4)) * 0, 4096 + 8 * 3),
        (lambda w, x, at: w.index_copy_(0, at, x[:3, :8]), 4 * 3 * 8 + 8 * 3),
        (lambda w, x, at: x.index_copy_(0, at, w[:3].repeat(1, 4))[:1] * 2, 128 + 8 * 3),
        (lambda w, x, at: x.tril() @ w[:32], 0),
        (lambda w, x, at: torch.where(at[:1] > 0, x, w[:1, :1]), 8),
        (lambda w, x, at: x.sum() + x.tril().sum(), 4096),
        (lambda w, x, at: x[at * 0].sum() + x.index_select(0, at * 0 + 1).sum(), 2 * 128 + 8 * 3),
        (lambda w, x, at: torch.nn.functional.embedding(at.repeat(99) - 3, x), 3 * 128 + 8 * 3),
        (lambda w, x, at: torch.cat([x.index_select(0, at[:2]), x[at[1:]]]), 3 * 128 + 8 * 2),
        (lambda w, x, at: x[:, :4][at], 3 * 16 + 8 * 3),
    ],
)
def test_what_an_honest_kernel_need_not_read_of_its_arguments_is_not_counted(
    forward: Callable[..., torch.Tensor], read: int
) -> None:
    counted = work(Doing(forward), ([torch.rand(32, 32), torch.tensor([3, 5, 9])], {}))
    assert counted["argument_bytes"] == read


@pytest.mark.parametrize(
    ("changed", "us", "rate"),
    [
        ({}, 100.0, "100 GB/s of a copy"),
        ({"flops": 4e9}, 1000.0, "4 TFLOP/s of TF32 products"),
        ({"flops": 4e9, "narrow": True}, 500.0, "8 TFLOP/s of bf16 products"),
        ({"flops": 4e9, "byte_formats": ["int8"]}, 400.0, "10 TFLOP/s of int8 products"),
        ({"flops": 4e9, "narrow": True, "byte_formats": ["fp8"]}, 250.0, "16 TFLOP/s of fp8 products"),
    ],
)
def test_the_limit_is_the_larger_of_moving_and_multiplying_and_names_its_rate(
    changed: dict[str, object], us: float, rate: str
) -> None:
    counted = {"read_bytes": 6e6, "written_bytes": 4e6, "flops": 4e6, "narrow": False, "byte_formats": []}
    reached = PEAKS.model_copy(update={"int8_tflops": 10.0, "fp8_tflops": 16.0})
    found = limit(counted | changed, reached)
    assert (found.us, found.rate) == (pytest.approx(us), rate)


def test_bytes_that_are_read_and_bytes_that_are_written_have_rates_of_their_own() -> None:
    reads = PEAKS.model_copy(update={"read_gbps": 125.0})
    counted = {"read_bytes": 6e6, "written_bytes": 4e6, "flops": 0.0, "narrow": False, "byte_formats": []}
    assert limit(counted, reads).us == pytest.approx(6e3 / 125 + 4e3 * (2 / 100 - 1 / 125))
    assert limit(counted, reads).rate == "125 GB/s of reading, 83 GB/s of writing"
    assert limit({**counted, "written_bytes": 6e6}, reads).us == pytest.approx(120.0), "what the copy itself takes"
    slow = PEAKS.model_copy(update={"read_gbps": 60.0})
    assert limit(counted, slow).us == pytest.approx(100.0), "a copy's half shows that reading is as fast"


def test_reading_alone_is_measured_beside_the_copy(cpu: Cpu) -> None:
    reached = _peaks(cpu, 1 << 24, {})
    assert reached["read_gbps"] and reached["copy_gbps"], "both are rates"
    ones = torch.ones(1 << 16)
    for way, most in zip(cpu.reads(ones), (1 << 16, READ_ROW, 1.0), strict=True):
        assert float(torch.as_tensor(way(0)).max()) == most, "every element is read"


def test_a_format_that_a_device_has_no_units_for_sets_no_limit() -> None:
    counted = {"read_bytes": 6e6, "written_bytes": 4e6, "flops": 4e9, "narrow": False, "byte_formats": ["fp8"]}
    assert limit(counted, PEAKS).rate == "4 TFLOP/s of TF32 products"


def test_formats_of_a_byte_are_counted_among_what_is_given() -> None:
    given = [torch.zeros(2, dtype=torch.int8), torch.zeros(2).to(torch.float8_e4m3fn), torch.zeros(2)]
    doing = Doing(lambda w, *given: given[2] + 1)
    assert work(doing, (given, {}))["byte_formats"] == ["fp8", "int8"]


def test_the_floor_leaves_out_what_a_cache_holds_and_a_rewrite_can_spare() -> None:
    counted = {"argument_bytes": 6e6, "written_bytes": 4e6, "flops": 4e12, "narrow": False}
    assert floor_us(counted, PEAKS, 1.15, cold=True) == pytest.approx(90.0 / 1.15)
    assert floor_us(counted, PEAKS, 1.15, cold=False) == 0.0


def test_shapes_are_combined_by_geometric_means_of_the_sides_that_ran_on_all() -> None:
    one = Samples(Resolution(0.01), {"eager": [10.0, 20.0], "compile": [1.0, 1.0], "candidate": [1.0, 2.0]})
    other = Samples(Resolution(0.01), {"eager": [40.0, 20.0, 5.0], "candidate": [4.0, 2.0, 5.0]}, cache="resident")
    one.warm, other.warm = ({name: [1.0] for name in ("eager", "compile", "candidate")} for _ in range(2))
    whole = combine([one, other])
    assert {n: pytest.approx(b) for n, b in whole.blocks.items()} == {"eager": [20, 20], "candidate": [2, 2]}
    assert whole.cache == "resident"


def test_a_cache_is_cold_where_it_is_flushed_or_outgrown() -> None:
    assert Rotation(16, False, True).cache(1) == "cold"
    assert Rotation(16, False, True).cache(16) == "resident"
    assert Rotation(16, True, False).cache(16) == "cold"


def test_a_load_that_leaves_no_core_for_timing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = CpuGauge(None)
    monkeypatch.setattr(os, "getloadavg", lambda: (500.0, 0.0, 0.0))
    gauge()
    assert "load 500.0" in gauge.notes()[0]


@served
async def test_a_kernel_that_is_faster_than_its_inputs_can_be_read_is_suspect(server: Server) -> None:
    idle = edit(
        edit(SCALE_ADD, "return x * self.scale", "return 0 * x.sum() + y * self.scale"),
        "return [torch.randn(64, 256)",
        "return [torch.randn(65536, 256)",
    )
    skipping = edit(edit(QUICK, "kernel.run(x, y", "kernel.run(y, y"), "empty_like(x)", "empty_like(y)")
    result = await server.evaluate(skipping, problem=idle)
    assert (result["status"], result["timing"]) == ("suspect", None), result
    assert "reading its inputs alone takes" in result["log"]


@served
async def test_every_input_shape_is_checked_and_timed(server: Server) -> None:
    result = await server.evaluate(QUICK, problem=SHAPES)
    assert result["status"] == "passed", result["log"]
    assert [shape["inputs"] for shape in result["shapes"]] == ["get_inputs", "get_inputs_tall"]
    small, tall = (shape["timing"]["median_us"] for shape in result["shapes"])
    assert small < result["timing"]["median_us"] < tall


@served
async def test_a_kernel_that_is_right_on_the_first_shape_only_is_wrong(server: Server) -> None:
    narrow = edit(QUICK, "i < m;", "i < (m < 64 * 256 ? m : 64 * 256);")
    result = await server.evaluate(narrow, problem=SHAPES)
    assert (result["status"], "get_inputs_tall" in result["log"]) == ("wrong", True), result["log"]


@pytest.mark.long
@served
async def test_a_problem_is_timed_in_all_modes_that_differ_and_the_fastest_is_named(server: Server) -> None:
    answer = await server.call("describe_problem", problem=SCALE_ADD, target="cpu")
    assert answer.structured_content is not None, answer.content
    rows = {row["name"]: row["timing"]["median_us"] for row in answer.structured_content["baselines"]}
    assert set(rows) == {"eager", "compile", "max-autotune-no-cudagraphs"}
    kernels = {row["name"]: row["kernels"] for row in answer.structured_content["baselines"]}
    assert kernels["eager"] == [] and kernels["compile"] == ["cpp_fused_add_mul_0"]
    assert answer.structured_content["fair_baseline"] == min(rows, key=lambda name: rows[name])
    again = await server.call("describe_problem", problem=SCALE_ADD, target="cpu", baselines=["compile"])
    assert again.structured_content is not None
    # What is kept of the target's other modes is told too.
    assert {"eager", "compile"} <= {b["name"] for b in again.structured_content["baselines"]} <= set(rows)
    uncertain = any("the time of eager is uncertain" in note for note in answer.structured_content["notes"])
    assert uncertain or again.structured_content["baselines"][0]["timing"]["median_us"] == rows["eager"]


def test_pairs_of_blocks_are_audited_unforeseeably_early_and_ever_more_rarely() -> None:
    drawn = [audits() for _ in range(300)]
    assert all(len([pair for pair in one if pair < MIN_PAIRS]) == AUDITS for one in drawn)
    for start in (6, 12, 24, 48, 96):
        end = min(2 * start, MAX_PAIRS)
        assert all(len([pair for pair in one if start <= pair < end]) == 1 for one in drawn)
        assert len({pair for one in drawn for pair in one if start <= pair < end}) > (end - start) * 3 // 4


class Wrapped(dict[str, torch.Tensor]):
    """As transformers returns its outputs: a dict that is a dataclass, too."""

    made = 0

    def __init__(self, y: torch.Tensor) -> None:
        super().__init__(y=y)
        self.y = y
        Wrapped.made += 1


class Wrapping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Wrapped:
        return Wrapped(y=x + 1)


def test_no_class_of_an_output_runs_code_after_the_call(cpu: Cpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrapped, "__dataclass_fields__", {"y": None}, raising=False)
    stage = staged(Wrapping(), cpu, 1 << 10)
    Wrapped.made = 0
    stage.block(7, 3, 1, "cold")
    with memory() as fd:
        stage.snapshot(fd, 0.5, last=False)
        spec = stage.snapshot(fd)
    assert Wrapped.made == 3 and spec["structure"]["record"][0] == "dataclass"
