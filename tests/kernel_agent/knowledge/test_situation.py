"""What the library is told."""

from dataclasses import replace
from functools import partial

import pytest

from kernel_agent.knowledge.situation import situation
from kernel_agent.run.brief import Brief, Outcome
from kernel_agent.run.types import Description, Device, Idea, Problem, Profile, Status, Trial
from rag.documents.page import LANGUAGES


def brief(target: str, source: str = "") -> Brief:
    description = Description(Device(target, "a device", "sm_90", 0, None), None, None, 1.0, 1.0, None, {})
    return Brief(Problem("relu", source, target), description, 1, Trial(None, 0, 0, None, ""), None, None)


@pytest.mark.parametrize(("target", "language"), [("cpu", "cpp"), ("cuda", "cuda"), ("triton", "cuda")])
def test_each_target_asks_in_a_language_that_the_corpus_has(target: str, language: str) -> None:
    asked = situation(brief(target))
    assert asked.language == language
    assert language in LANGUAGES


def test_what_could_not_be_traced_is_read_off_the_source() -> None:
    asked = situation(brief("cuda", "y = F.layer_norm(torch.matmul(x, w), (4,))"))
    assert (asked.operators, asked.families) == (("layer_norm", "matmul"), ("norm", "gemm"))


def test_ideas_leave_out_what_was_tried_or_served_and_code_asks_for_the_idea() -> None:
    known = replace(brief("cuda"), ancestors=(Outcome("Fuse", Status.PASSED, 1.2),), served=("p1",))
    assert (situation(known).tried, situation(known).served, situation(known).idea) == (("Fuse",), ("p1",), "")
    written = situation(known, Idea("i", 1, "p", "Tile", "reuse"), attempt=1)
    assert (written.tried, written.idea, written.turn) == ((), "Tile reuse", 1)


def test_the_unit_that_binds_decides_the_question_and_the_bound_stays_one() -> None:
    known = brief("cuda")
    product = replace(known, description=replace(known.description, bytes=3e8, flops=1e11))
    assert situation(product).bottlenecks == ("compute",)
    seen = partial(Profile, "counters", "memory", "compute 71 %, memory 73 % of peak")
    for unit, word in (("L2", "l2-bw"), ("shared memory queue", "smem"), ("DRAM", "dram-bw"), (None, "dram-bw")):
        assert situation(replace(product, parent_profile=seen(unit=unit))).bottlenecks == (word, "compute")
    assert situation(replace(product, parent_profile=seen(("spills",), unit="L2"))).bottlenecks[0] == "occupancy"


def test_a_repair_asks_for_the_log() -> None:
    assert situation(brief("cuda"), Idea("i", 1, "p", "Tile", ""), log="error: x").errors == "error: x"


def test_a_convolution_of_channels_by_themselves_is_called_so() -> None:
    def asked(op: str, groups: list[object]) -> tuple[str, ...]:
        arguments = [{"node": "x"}, {"node": "w"}, None, [1, 1], [0, 0], [1, 1], *groups]
        graph = {"inputs": [], "parameters": [], "nodes": [{"name": "c", "op": op, "args": arguments, "kwargs": {}}]}
        known = brief("cuda")
        return situation(replace(known, description=replace(known.description, graph=graph))).operators

    assert asked("aten.conv2d.default", [64]) == ("depthwise_conv2d",)
    assert asked("aten.conv2d.default", [1]) == asked("aten.conv2d.default", []) == ("conv2d",)
    assert asked("aten.convolution.default", [False, [0, 0], 8]) == ("depthwise_convolution",)
    assert asked("aten.roll.default", [64]) == ("roll",)


def traced(*nodes: tuple[str, str, list[str]]) -> tuple[str, ...]:
    rows = [{"name": n, "op": op, "args": [[{"node": a} for a in args]], "kwargs": {}} for n, op, args in nodes]
    known = brief("cuda")
    graph = {"inputs": [], "parameters": [], "nodes": rows}
    return situation(replace(known, description=replace(known.description, graph=graph))).families


def test_attention_that_is_written_out_is_called_so() -> None:
    scores, scaled = ("s", "aten.matmul.default", ["q", "k"]), ("d", "aten.div.Tensor", ["s", "bias"])
    weights, out = ("w", "aten.softmax.int", ["d"]), ("o", "aten.bmm.default", ["w", "v"])
    assert traced(scores, scaled, weights, out)[0] == "attention"
    assert "attention" not in traced(scores, scaled, weights)
    assert "attention" not in traced(("w", "aten.softmax.int", ["x"]), out)
    assert "attention" not in traced(scores, scaled, weights, ("o", "aten.bmm.default", ["v", "v"]))
