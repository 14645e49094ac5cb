"""LSTMs and GRUs in one kernel: its blocks run side by side on the CPU, and wait for one another as on a device."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.works import Regional, work_of
from kernel_agent.proposers.templates.emit_recurrent import build
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.recurrent import Recurrent, recurrent_of
from kernel_agent.proposers.templates.recurrent_tile import library_us, ranked, tiled
from kernel_agent.run.measured import Chip
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.recurrent.modules import FULL, MODULES, full_source, source
from tests.support.edits import edit
from tests.support.emitted import all_judged, compiled_by_nvcc, judged, on_cpu
from tests.support.recurrent import GRAPHS, H200, LARGE, plan, recurrent, written

# Blocks of a layer: several, one, and several of two layers after the other.
TILES = {
    "lstm": ("4-2-8-2", "12-2-32-2", "4-1-16-1"),
    "lstm_given": ("4-3-16-1", "4-2-8-2"),
    "gru": ("5-2-8-2", "4-1-16-1"),
    "both": ("4-1-8-2",),
    "gru_both": ("4-1-16-1", "8-1-8-3"),
    "wide": ("4-1-8-2", "5-1-16-1"),
    "spoiled": ("4-2-8-2",),
}
CASES = [(name, tile) for name in MODULES for tile in (None, *TILES.get(name, ()))]
SOON = [("lstm", "4-2-8-2"), ("gru_both", "4-1-16-1")]


def fault(name: str, text: str, folder: Path) -> str | None:
    """What is wrong with a candidate that runs on the CPU."""
    return judged(name, source(name), on_cpu(text), folder).get(name)


def test_recurrent_networks_equal_pytorch_in_emulation(tmp_path: Path) -> None:
    cases = [{"name": n, "source": source(n), "candidate": on_cpu(written(GRAPHS, n, tile))} for n, tile in SOON]
    assert not all_judged(cases, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("name", "tile"), [case for case in CASES if case not in SOON])
def test_all_recurrent_networks_equal_pytorch(tmp_path: Path, name: str, tile: str | None) -> None:
    assert fault(name, written(GRAPHS, name, tile), tmp_path) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "tile", "old", "new"),
    [
        ("lstm", "4-2-8-2", "!there(v[i])", "false"),
        ("lstm", "4-2-8-2", "mine, first), forget", "mine, first + 1), forget"),
        ("lstm", "4-1-16-1", "layer < LAYERS; layer += WAVE", "layer < WAVE; layer += WAVE"),
        ("lstm", "4-2-8-2", "LAYERS - 1) {", "0) {"),
        ("lstm", "4-2-8-2", "HISTORY * sizeof(float)", "0"),
        ("lstm_given", None, "LSTM ? t.c0 : t.h0", "t.h0"),
        ("gru", "5-2-8-2", "k_tanh(x + reset * h)", "k_tanh(reset * (x + h))"),
        ("gru", "5-2-8-2", "SLICE + p.row * ALL_ROWS + at", "SLICE + at"),
        ("both", "4-1-8-2", "layer, step + by, s.xs", "layer, step, s.xs"),
        ("both", "4-1-8-2", "to + d * WIDTH", "to + (DIRECTIONS - 1 - d) * WIDTH"),
        ("spoiled", "4-2-8-2", "unit < HIDDEN ? __float_as_uint(h) : 0", "__float_as_uint(h)"),
        ("wide", "4-1-8-2", "b < BATCHES; b += TOGETHER", "b < TOGETHER; b += TOGETHER"),
    ],
)
def test_a_mistake_is_seen_in_emulation(tmp_path: Path, name: str, tile: str | None, old: str, new: str) -> None:
    assert fault(name, edit(written(GRAPHS, name, tile), old, new), tmp_path) is not None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("lstm", "ptx::meet();  // the state is there", ""),
        ("lstm", "ptx::meet();  // the input is done with", ""),
        ("lstm", "ptx::show(state", "if (step != 2) ptx::show(state"),
        ("spoiled", "word == ABSENT ? 0x7FFFFFFF : word", "word"),
    ],
)
def test_who_waits_for_ever_is_seen_in_emulation(tmp_path: Path, name: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError, match="the block hangs"):
        fault(name, edit(written(GRAPHS, name, "4-2-8-2"), old, new), tmp_path)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", FULL)
def test_kernelbenchs_networks_compile_without_spills(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kernel.cu"
    found = re.search(r'_source = r"""\n(.*?)"""', written(LARGE, name), re.DOTALL)
    assert found
    file.write_text(found[1])
    told = compiled_by_nvcc(file, "sm_90a")
    assert told.count(", 0 bytes spill stores") == told.count("spill stores") > 0


@pytest.mark.parametrize("name", FULL)
def test_a_network_of_kernelbenchs_size_is_a_kernel_of_ours(name: str) -> None:
    work = work_of(LARGE[name], H200)
    assert isinstance(work, Regional)
    [kernel] = [k for k in work.plan(work.space.starts[0]).kernels if isinstance(k.program, Recurrent)]
    assert not any("lstm" in node or "gru" in node for node in work.plan({}).reasons)
    text = work.write(full_source(name), work.space.starts[0])
    assert f"scratch = torch.empty({kernel.program.shape.history}, " in text
    assert kernel.program.spares > 0


def test_tiles_of_all_devices_fit_them() -> None:
    for name in FULL:
        shape = recurrent(parse(LARGE[name])).shape
        for device in (H200, replace(H200, chip=Chip(78)), replace(H200, arch="sm_89", chip=Chip(128))):
            for label, tile in ranked(shape, device).items():
                assert tile == tiled(shape, label)
                assert tile.blocks <= (device.chip.sms or 0) and tile.units * shape.gates <= tile.lanes * tile.rows
                assert tile.wave == 1 or shape.directions == 1
                assert tile.batches % tile.together == 0 and tile.batches >= shape.batch


def test_layers_are_a_wave_where_they_all_fit() -> None:
    tiles = [next(iter(ranked(recurrent(parse(LARGE[name])).shape, H200).values())) for name in FULL]
    assert [tile.wave for tile in tiles] == [6, 1, 6, 1]
    assert all(tile.us(H200) < library_us(tile.of) / 3 for tile in tiles)


def test_only_results_that_are_read_are_written() -> None:
    assert [recurrent(parse(GRAPHS[name])).wanted for name in ("lstm", "lstm_given", "gru_both")] == [
        (0, 1, 2),
        (2,),
        (1,),
    ]


def test_states_of_zeros_are_no_tensors() -> None:
    assert recurrent(parse(GRAPHS["lstm"])).initial == (None, None)
    assert "zeros" not in written(GRAPHS, "lstm").partition("class ModelNew")[2]


def test_an_input_that_is_a_view_is_a_tensor_of_its_own() -> None:
    graph = json.loads(json.dumps(GRAPHS["once"]))
    view = {"name": "v", "op": "aten.transpose.int", "args": [{"node": "x"}, 0, 1], "kwargs": {}}
    graph["nodes"].insert(0, {**view, "outputs": [{"shape": [2, 1, 4], "dtype": "float32"}]})
    call = next(node for node in graph["nodes"] if node["op"] == "aten.lstm.input")
    call["args"][0], call["args"][8] = {"node": "v"}, True
    [kernel] = plan(parse(graph)).kernels
    assert isinstance(kernel.program, Recurrent) and kernel.program.x.node == "v"


def _changed(name: str, place: int, value: Any) -> Graph:
    """The graph with another argument of the network's call."""
    graph = json.loads(json.dumps(GRAPHS[name]))
    call = next(node for node in graph["nodes"] if "input" in node["op"])
    call["args"][place] = value
    return parse(graph)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [(5, 0.5, "random numbers"), (2, [{"node": "p_net_weight_ih_l0"}] * 10, "projections"), (0, None, "arguments")],
)
def test_a_network_with_other_arguments_stays_pytorchs(place: int, value: Any, why: str) -> None:
    found = plan(_changed("lstm", place, value))
    assert not found.kernels and why in found.reasons["lstm"]


def test_a_network_that_does_not_fit_or_is_short_stays_pytorchs() -> None:
    shape = recurrent(parse(LARGE["lstm"])).shape
    with pytest.raises(NotCovered, match="do not hold"):
        ranked(replace(shape, hidden=2048), H200)
    with pytest.raises(NotCovered, match="memory"):
        ranked(replace(shape, steps=1 << 20), H200)
    alone = parse(GRAPHS["once"])
    whole = Graph((), alone.leaves, alone.nodes, tuple(n.name for n in alone.nodes if "getitem" in n.op), "tuple")
    assert recurrent_of(whole)
    with pytest.raises(NotCovered, match="as fast"):
        build(whole, H200)
    with pytest.raises(NotCovered, match="no kernel for any part"):
        work_of(LARGE["gru"], Device("cpu", "a CPU", "x86-64", 2, 10.0))


def test_alike_networks_are_one_kernel() -> None:
    first, second = (recurrent(parse(GRAPHS[name])) for name in ("lstm", "lstm"))
    assert first.likeness == second.likeness
    assert first.likeness != recurrent(parse(GRAPHS["spoiled"])).likeness
