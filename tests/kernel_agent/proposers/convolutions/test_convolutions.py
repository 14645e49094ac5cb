"""Convolutions by wgmma: the kernels' own index maps, run on the CPU with boxes and tensor cores in emulation."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.works import Regional, work_of
from kernel_agent.proposers.templates.arithmetic import offers
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.convolution_tile import BYTES, ranked
from kernel_agent.proposers.templates.graph import parse
from kernel_agent.proposers.templates.taps import Schedule, Window
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.convolutions.modules import FULL, MODULES, full_source, source
from tests.support.convolutions import GRAPHS, LARGE, convolution, plan, written
from tests.support.edits import edit
from tests.support.emitted import compiled_by_nvcc, judged, on_cpu

PEAKS = {"fp32_tflops": 51.3, "tf32_tflops": 411.6, "bf16_tflops": 786.9}
H200 = Device("cuda", "a GPU", "sm_90", 0, 4286.0, build_arch="9.0a", peaks=PEAKS)
WAYS = [Way("one float16 product", 5.0, "inside", None), Way("one bfloat16 product", 40.0, "near", None)]


def fault(name: str, text: str, folder: Path, late: bool = True) -> str | None:
    """What is wrong with a candidate that runs on the CPU."""
    return judged(name, source(name), on_cpu(text, late), folder).get(name)


@pytest.mark.parametrize(
    ("name", "genes"),
    [
        ("tail", {}),
        *(
            pytest.param(name, genes, marks=pytest.mark.long)
            for name, genes in [
                *((name, {}) for name in MODULES if name != "tail"),
                ("many", {"tile": "128x128"}),
                ("many", {"tile": "128x256"}),
                ("turned_wide", {"tile": "128x128"}),
                ("tail", {"arithmetic": "tf32"}),
                ("strided", {"arithmetic": "tf32", "tile": "128x64"}),
                ("turned_line", {"arithmetic": "tf32"}),
                ("points", {"arithmetic": "bf16", "tile": "256x128"}),
            ]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()) or "default",
)
def test_convolutions_equal_pytorch_in_emulation(tmp_path: Path, name: str, genes: dict[str, str]) -> None:
    assert fault(name, written(name, **genes), tmp_path) is None


@pytest.mark.long
def test_a_bias_in_the_call_is_added_by_the_kernel(tmp_path: Path) -> None:
    text = written("turned", bias=False)
    assert "a convolution's bias" not in text
    assert fault("turned", text, tmp_path) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tail", "STEP[STEPS] = {0x10000", "STEP[STEPS] = {0x20000"),
        ("tail", "ORIGIN_H = -1", "ORIGIN_H = 0"),
        ("tail", "(tile.w + ORIGIN_W) * 2", "tile.w * 2"),
        ("many", "TILE_N * 16, 128)", "TILE_N * 16, 256)"),
        ("many", "chunk * TOGETHER, tile.image", "0, tile.image"),
        ("line", "int LEFT = LINE ?", "int LEFT = !LINE ?"),
        ("strided", "GROUP_W[GROUPS] = {0, 1, 2,", "GROUP_W[GROUPS] = {0, 2, 1,"),
        ("turned", "PHASE_W[PHASES] = {0, 1, 0, 1}", "PHASE_W[PHASES] = {1, 0, 1, 0}"),
        ("turned", "TAP[TAPS] = {", "TAP[TAPS] = {1 - "),
        ("turned", "one * TURNS + turn", "one * TURNS + 1 - turn"),
        ("wide", "WIDE == 8 ? PITCH * 16 : 128", "PITCH * 16"),
    ],
)
def test_a_wrong_place_is_seen_in_emulation(tmp_path: Path, name: str, old: str, new: str) -> None:
    assert fault(name, edit(written(name), old, new), tmp_path) is not None


@pytest.mark.long
@pytest.mark.parametrize("tile", ["128x256", "256x64"])
def test_boxes_that_arrive_at_once_make_no_difference(tmp_path: Path, tile: str) -> None:
    assert fault("many", written("many", tile=tile), tmp_path, late=False) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("tile", "wait"),
    [
        ("256x64", "ptx::wait(&bar.full[box % STAGES], box / STAGES & 1);"),
        ("128x256", "ptx::wait(&bar.w_full[stage % W_STAGES], stage / W_STAGES & 1);"),
        ("128x256", "ptx::wait(&bar.w_empty[s], (stage / W_STAGES & 1) ^ 1);"),
        ("256x64", "ptx::wait(&bar.empty[s], (box / STAGES & 1) ^ 1);"),
    ],
)
def test_a_wait_that_lacks_is_seen_in_emulation(tmp_path: Path, tile: str, wait: str) -> None:
    text = edit(written("many", tile=tile), wait, "")
    try:
        wrong = fault("many", text, tmp_path, late="full" in wait)
    except AssertionError as ended:
        wrong = "hangs" if "the block hangs" in str(ended) else None
    assert wrong is not None


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", FULL)
def test_kernelbenchs_convolutions_compile_without_spills(tmp_path: Path, name: str) -> None:
    shape = convolution(parse(LARGE[name])).shape
    kinds = [("fp16", tile) for tile in ranked(shape, "fp16")]
    for arithmetic, tile in [*kinds, ("tf32", next(iter(ranked(shape, "tf32"))))]:
        file = tmp_path / f"{arithmetic}-{tile}.cu"
        text = written(name, arithmetic=arithmetic, tile=tile)
        file.write_text(re.search(r'_source = r"""\n(.*?)"""', text, re.DOTALL)[1])  # type: ignore[index]
        told = compiled_by_nvcc(file, "sm_90a")
        assert "are serialized" not in told
        assert told.count(", 0 bytes spill stores") == told.count("spill stores") == 3


def test_every_tap_is_in_one_list_and_reads_the_place_that_it_did() -> None:
    windows = Window(3, 2, 1, 2), Window(4, 3, 0), Window(5, 1, 3)
    for turned in (False, True):
        schedule = Schedule(windows, turned)
        taps = [number for one in schedule.lists for number, _ in one.taps]
        assert sorted(taps) == list(range(60))
        assert [one.phase for one in schedule.lists] == sorted(one.phase for one in schedule.lists)
        for one in schedule.lists:
            remainders = (schedule.phases[one.phase], schedule.groups[one.group])[not turned]
            for number, places in one.taps:
                ways = zip(windows, (number // 20, number // 5 % 4, number % 5), remainders, places, strict=True)
                for window, tap, remainder, place in ways:
                    given = tap * window.dilation - window.padding
                    given += place * window.stride if turned else 0
                    assert given == (remainder if turned else place * window.stride + remainder)


def test_few_channels_share_a_step_by_two_taps() -> None:
    [tile, *_] = ranked(convolution(parse(GRAPHS["tail"])).shape, "fp16").values()
    assert (tile.units, tile.together) == (1, 1)
    assert sum(map(len, tile.steps)) == 5


def test_a_tile_fits_into_shared_memory_and_a_box_into_what_tma_brings() -> None:
    for graph in (*GRAPHS.values(), *LARGE.values()):
        for arithmetic in BYTES:
            for tile in ranked(convolution(parse(graph)).shape, arithmetic).values():
                weights = 3 * tile.joint * tile.channels * 32
                assert (tile.stages * tile.stage + weights + tile.held + 3072) * tile.resident <= 228 << 10
                assert tile.box[2] * 2 <= 256 and max(tile.box) <= 256
                assert all(len(steps) % tile.joint == 0 for steps in tile.steps)


def test_what_follows_a_convolution_is_one_kernel_with_it() -> None:
    found = [kernel.nodes for kernel in plan(parse(GRAPHS["tail"])).kernels]
    assert found == [("conv2d_p1", "conv2d", "mul", "leaky_relu", "add", "clamp")]
    assert convolution(parse(GRAPHS["tail"]), bias=False).outputs[0].spec.shape == (2, 12, 11, 19)


def test_alike_convolutions_are_one_kernel() -> None:
    first, second = (convolution(parse(GRAPHS["turned"])), convolution(parse(GRAPHS["turned"]), bias=True))
    assert first.likeness == second.likeness
    assert first.likeness != convolution(parse(GRAPHS["turned_once"])).likeness


def test_a_convolution_of_groups_stays_pytorchs() -> None:
    graph = json.loads(json.dumps(GRAPHS["many"]))
    graph["nodes"][0]["args"] += [None, [1, 1], [0, 0], [1, 1], 2]
    assert not plan(parse(graph)).kernels


def test_our_convolution_comes_first_where_it_is_predicted_to_be_faster() -> None:
    work = work_of(LARGE["2/54"], H200, offers(H200, WAYS, True))
    assert isinstance(work, Regional)
    starts = work.space.starts
    assert [start["layout"] for start in starts[:2]] == ["kernel", "last"]
    assert work.plan(starts[0]).kernels[0].program.arithmetics == ("fp16", "bf16")  # type: ignore[union-attr]
    assert not any(isinstance(kernel.program, Convolution) for kernel in work.plan(starts[1]).kernels)
    slow = replace(H200, peaks={**PEAKS, "bf16_tflops": 250.0})
    assert work_of(LARGE["2/54"], slow, offers(slow, WAYS, True)).space.starts[0]["layout"] == "last"


def test_no_layout_lets_the_library_take_tf32_for_a_full_float32_reference() -> None:
    exact = [Way("three bfloat16 products", 1.0, "inside", None)]
    assert work_of(LARGE["1/66"], H200, offers(H200, exact, narrow=True)).plan({}).kernels  # type: ignore[union-attr]
    with pytest.raises(NotCovered):
        work_of(LARGE["1/66"], H200, offers(H200, exact, narrow=False))


def test_a_convolution_alone_is_a_kernel_of_ours() -> None:
    work = work_of(LARGE["1/76"], H200, offers(H200, WAYS, True))
    text = work.write(full_source("1/76"), work.space.starts[0])
    assert "No call of PyTorch computes." in text
    shape = convolution(parse(LARGE["1/76"])).shape
    scratch = next(iter(ranked(shape, "fp16").values())).scratch
    assert f"scratch = torch.empty({scratch}, " in text and scratch >= 64 * 64 * prod(shape.given[1]) // 2


@pytest.mark.parametrize(
    ("device", "ways"),
    [
        (replace(H200, build_arch="9.0"), WAYS),
        (replace(H200, arch="sm_80", build_arch="8.0"), WAYS),
        (H200, [Way("three bfloat16 products", 1.0, "inside", None)]),
    ],
    ids=["no wgmma", "ampere", "not exact enough"],
)
def test_a_convolution_stays_the_librarys_where_wgmma_or_exactness_lacks(device: Device, ways: list[Way]) -> None:
    with pytest.raises(NotCovered):
        work_of(LARGE["1/76"], device, offers(device, ways, True))
