"""Concatenations into slices: kernels write their parts in place, and read them there; nothing else changes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.proposers.regions import module, slices
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import COPY, ROOM, Plan, traffic
from kernel_agent.proposers.templates.arithmetic import covered
from kernel_agent.proposers.templates.convolution import Convolution, is_convolution
from kernel_agent.proposers.templates.emit_cuda import vector
from kernel_agent.proposers.templates.graph import Graph, Node, parse
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS, Source
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.slices.modules import MODULES, source
from tests.support.convolutions import ALWAYS, GENES
from tests.support.emitted import all_judged, compiled_by_nvcc, on_cpu

GRAPHS: dict[str, Any] = json.loads((Path(__file__).parent / "graphs.json").read_text())
GPU = Device("cuda", "a GPU", "sm_90", 0, 2600.0)
CONVOLUTIONS = ["branches", "grown", "grown_by_convolutions", "with_inputs", "other_dimensions"]


@pytest.fixture(autouse=True)
def launches_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are worth what large ones are."""
    monkeypatch.setattr(slices, "LAUNCH", 0)


def plan(name: str, kind: str = "gpu") -> Plan:
    """The plan for a GPU, where products are the library's, or without slices for another kind."""
    return cut(parse(GRAPHS[name]), bias=True, long_rows=True, kinds=frozenset({kind}), build=_built)


def _built(graph: Graph) -> Routine:
    return (ALWAYS.convolve if any(map(is_convolution, graph.nodes)) else covered)(graph)


def written(name: str, start: int = 0) -> str:
    target = TARGETS["cuda"]

    def emit(program: Routine) -> Source:
        starts = target.space(program, GPU).starts
        return target.source(program, GENES if isinstance(program, Convolution) else starts[start % len(starts)])

    return module.assemble(source(name), name, plan(name), emit, target.flags({}), target)


def judged(names: list[str], folder: Path, start: int = 0) -> dict[str, str]:
    """What is wrong with candidates that run on the CPU, by name."""
    cases = [{"name": name, "source": source(name), "candidate": on_cpu(written(name, start))} for name in names]
    return all_judged(cases, folder)


def moved(plan: Plan) -> int:
    """Bytes of a plan's steps."""
    calls = [step for step in plan.steps if isinstance(step, Node) and names(step.op)[0] in ("cat", *_ops(ROOM, COPY))]
    return sum(kernel.moved for kernel in plan.kernels) + sum(traffic(call, plan.specs) for call in calls)


def _ops(*ops: str) -> list[str]:
    return [names(op)[0] for op in ops]


def calls(plan: Plan) -> list[str]:
    return [names(step.op)[0] for step in plan.steps if isinstance(step, Node)]


def test_slices_of_rows_equal_pytorch_in_emulation(tmp_path: Path) -> None:
    assert judged(["beside", "pooled", "rows"], tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("start", range(3))
def test_all_but_convolutions_equal_pytorch_in_emulation(tmp_path: Path, start: int) -> None:
    assert judged([name for name in MODULES if name not in CONVOLUTIONS], tmp_path, start) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_into_slices_equal_pytorch_in_emulation(tmp_path: Path, name: str) -> None:
    assert judged([name], tmp_path) == {}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["branches", "beside", "folded_rows"])
def test_kernels_that_write_slices_compile_without_spills(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kernels.cu"
    file.write_text(re.search(r'_source = r"""\n(.*?)"""', written(name), re.DOTALL)[1])  # type: ignore[index]
    said = compiled_by_nvcc(file, "sm_90a")
    assert set(re.findall(r"\d+ bytes spill stores", said)) == {"0 bytes spill stores"}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("two_types", "changed")])
def test_a_plan_with_slices_moves_fewer_bytes(name: str) -> None:
    assert moved(plan(name)) < moved(plan(name, "none"))


def test_the_bytes_that_slices_spare_are_those_of_the_copy() -> None:
    ours, theirs = plan("branches"), plan("branches", "none")
    [cat] = [step for step in theirs.steps if isinstance(step, Node) and names(step.op)[0] == "cat"]
    assert moved(theirs) - moved(ours) == traffic(cat, theirs.specs) == 2 * theirs.specs["cat"].bytes


@pytest.mark.parametrize("name", ["two_types", "changed"])
def test_concatenations_that_change_or_convert_stay_pytorchs(name: str) -> None:
    assert calls(plan(name)) == calls(plan(name, "none")) and not plan(name).slices


@pytest.mark.parametrize("name", ["returned", "read_by_pytorch"])
def test_a_part_that_others_read_is_a_tensor_of_its_own(name: str) -> None:
    found = plan(name)
    assert set(found.slices) == {"sin"}
    assert [step.args[4].node for step in found.steps if isinstance(step, Node) and step.op == COPY] == ["exp"]


def test_concatenations_that_grow_share_one_piece_of_memory() -> None:
    found = plan("grown")
    assert calls(found) == _ops(ROOM, COPY)
    assert {place.whole for place in found.slices.values()} == {"cat_3"}
    assert [(found.slices[name].start, found.slices[name].end) for name in ("cat", "cat_1", "cat_2")] == [
        (0, 5),
        (0, 13),
        (0, 21),
    ]


def test_pooling_and_convolutions_by_channel_write_slices_of_whole_rows() -> None:
    text = written("pooled")
    assert "_k1_max_pool2d_mul(x, cat[:, 2:])" in text and "avg_pool2d(x, cat[:, :2])" in text
    assert re.search(r"_k\d_hardtanh_depthwise2d_add_relu\(.*, cat_1\[:, :4\]\)", text)


def test_convolutions_read_slices_too() -> None:
    found = plan("grown_by_convolutions")
    assert calls(found) == _ops(ROOM, COPY) and len(found.kernels) == 4
    kernel = found.kernels[-1].program
    assert isinstance(kernel, Convolution) and kernel.lies and kernel.lies.begin == 5 * 80
    assert kernel.lies.pitch == 23 * 80 and "IMAGE = 1840;" in written("grown_by_convolutions")
    assert kernel.shape.given_bytes == 4 * 2 * 6 * 80
    assert moved(found) < 0.8 * moved(plan("grown_by_convolutions", "none"))


def test_a_part_of_two_concatenations_is_written_into_the_first() -> None:
    text = written("twice")
    assert "_k1_exp(x, cat[:, :3])" in text
    assert "cat[:, 3:].copy_(cat[:, :3])" in text and "torch.cat([cat[:, :3], cat[:, :3]], 2)" in text


def test_the_file_says_where_kernels_write_and_read() -> None:
    text = written("beside")
    assert text[text.index("        cat = ") :].split("\n") == [
        "        cat = torch.empty((3, 7, 12, 14), dtype=torch.float32, device=x.device)",
        "        mean = _k1_relu_mul_mean(x, cat[:, :5])",
        "        max_pool2d = _k2_max_pool2d(cat)",
        "        tanh = _k3_sigmoid_sub_tanh(y, cat[:, 5:])",
        "        return (cat, max_pool2d, mean, tanh,)",
        "",
    ]
    assert f"# Rule: {slices.TITLE}.\n# No call of PyTorch computes.\n" in text


def test_vectors_that_are_stored_begin_where_memory_is_aligned() -> None:
    for name in ("rows", "beside", "nested", "folded_rows"):
        for kernel in plan(name).kernels:
            slabs = [output.slab for output in kernel.program.outputs if output.slab]
            if slabs and isinstance(kernel.program, Program):
                width = vector(kernel.program, 4)
                assert all(n % width == 0 for slab in slabs for n in (slab.run, slab.pitch, slab.begin))
    assert vector(plan("rows").kernels[0].program, 4) == 1
    assert vector(plan("beside").kernels[0].program, 4) == 4


def test_small_parts_that_are_copied_are_not_worth_their_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LAUNCH", 1 << 23)
    assert {place.whole for place in plan("with_inputs").slices.values()} == {"cat_1"}  # not that of two copies


def test_nothing_is_sliced_on_a_processor() -> None:
    assert not plan("beside", "cpu").slices
