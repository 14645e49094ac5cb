"""Attention by wgmma: the kernels' own index maps, run on the CPU with boxes and tensor cores in emulation."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.attended import TITLE
from kernel_agent.proposers.regions.calls import written as called
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.works import Regional, work_of
from kernel_agent.proposers.templates.arithmetic import Offers, offered, offers
from kernel_agent.proposers.templates.attention import HALVES, Attention, is_attention
from kernel_agent.proposers.templates.attention_tile import ROOM, ranked
from kernel_agent.proposers.templates.graph import Node, Ref, Spec, parse
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Description, Device
from tests.kernel_agent.proposers.attentions.modules import FULL, MODULES, source
from tests.support.attentions import ALWAYS, GRAPHS, LARGE, attention, plan, written
from tests.support.edits import edit
from tests.support.emitted import compiled_by_nvcc, judged, on_cpu

PEAKS = {"fp32_tflops": 51.3, "tf32_tflops": 411.6, "bf16_tflops": 786.9}
H200 = Device("cuda", "a GPU", "sm_90", 0, 4286.0, build_arch="9.0a", peaks=PEAKS)
WAYS = [Way("three TF32 products", 0.1, "inside", None), Way("one float16 product", 50.0, "near", None)]


def fault(name: str, text: str, folder: Path) -> str | None:
    """What is wrong with a candidate that runs on the CPU."""
    return judged(name, source(name), on_cpu(text), folder).get(name)


@pytest.mark.parametrize(
    ("name", "genes"),
    [
        ("packed", {}),
        *(
            pytest.param(name, genes, marks=pytest.mark.long)
            for name, genes in [
                *((name, {}) for name in MODULES if name not in ("packed", *HALVES)),
                ("plain", {"tile": "192x64"}),
                ("packed", {"tile": "192x128", "stages": 2}),
                ("causal", {"tile": "128x128"}),
                ("added", {"tile": "128x128"}),
                ("hidden", {"tile": "128x128"}),
                ("odd_2", {"tile": "192x128"}),
                ("widest", {"stages": 2}),
            ]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "default",
)
def test_attention_equals_pytorch_in_emulation(tmp_path: Path, name: str, genes: dict[str, str | int]) -> None:
    text = written(name, **genes)
    assert f"# Rule: {TITLE}." in text
    assert fault(name, text, tmp_path) is None


@pytest.mark.long
@pytest.mark.parametrize("dtype", HALVES)
def test_attention_of_sixteen_bits_equals_pytorch_in_emulation(tmp_path: Path, dtype: str) -> None:
    times = {"float16": 1 << 11, "bfloat16": 1 << 14}[dtype]  # PyTorch rounds each step to the type
    text = written(dtype)
    assert "WAY = Way::fp16;" in text
    assert judged(dtype, source(dtype), on_cpu(text), tmp_path, times) == {}


@pytest.mark.long
def test_boxes_that_arrive_at_once_make_no_difference(tmp_path: Path) -> None:
    text = on_cpu(written("large", stages=2), late=False)
    assert judged("large", source("large"), text, tmp_path) == {}


@pytest.mark.long
def test_one_product_of_float16_errs_as_its_operands_do(tmp_path: Path) -> None:
    text = on_cpu(written("plain", arithmetic="fp16"))
    assert judged("plain", source("plain"), text, tmp_path) != {}
    assert judged("plain", source("plain"), text, tmp_path, 1 << 10) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("packed", "rows.sum[r] = fmaf(rows.sum[r], scale[r], sum)", "rows.sum[r] += sum"),
        ("packed", "d[e] * of_values", "d[e]"),
        ("packed", "? HIDDEN : seen[0] ? MIXED : OPEN", "? HIDDEN : OPEN"),
        ("packed", "!seen[1] && FILL == -INFINITY ? HIDDEN", "seen[0] ? HIDDEN"),
        ("plain", "scores[e] = n < N ?", "scores[e] = n <= N ?"),
        ("plain", "(turn == 1 ? SIDE_K >> 4 : 0)", "0"),
        ("plain", "low[step], b, step > 0", "high[step], b, step > 0"),
        ("causal", "return n > m ? -INFINITY : x", "return n >= m ? -INFINITY : x"),
        ("causal", "(j + 1) * KEYS - 1 > group * 64 ? MIXED", "j * KEYS > group * 64 ? MIXED"),
        ("causal", "j * KEYS > group * 64 + 63", "j * KEYS > group * 64 - 1"),
        ("causal", "m0 + TILE_M < N ? m0 + TILE_M : N", "m0 + KEYS < N ? m0 + KEYS : N"),
        ("kept", "EMPTY_IS_ZERO = true", "EMPTY_IS_ZERO = false"),
        ("hidden", "EMPTY_IS_ZERO = false", "EMPTY_IS_ZERO = true"),
        ("widest", "k / 64 * CHUNK_Q", "0"),
        ("padding", "made.left[head] = 1", "made.left[head] = 0"),
        ("far_apart", "made.odd[head] = 1", "made.odd[head] = 0"),
    ],
)
def test_a_wrong_step_is_seen_in_emulation(tmp_path: Path, name: str, old: str, new: str) -> None:
    assert fault(name, edit(written(name), old, new), tmp_path) is not None


@pytest.mark.long
@pytest.mark.parametrize(
    "wait",
    [
        "ptx::wait(&bars.keys[s], parity);",
        "ptx::wait(&bars.values[s], parity);",
        "ptx::wait(&bars.keys_read[s], parity);",
        "ptx::wait(&bars.values_read[s], parity);",
    ],
)
def test_a_wait_that_lacks_is_seen_in_emulation(tmp_path: Path, wait: str) -> None:
    head, _, rest = written("large", stages=2).rpartition(wait)
    late = "_read" not in wait
    try:
        wrong = judged("large", source("large"), on_cpu(head + rest, late=late), tmp_path).get("large")
    except AssertionError as ended:
        wrong = "hangs" if "the block hangs" in str(ended) else None
    assert wrong is not None


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", FULL)
def test_attention_of_full_size_compiles_without_spills(tmp_path: Path, name: str) -> None:
    shape = attention(parse(LARGE[name])).shape
    for arithmetic in ("fp16x3", "fp16"):
        for tile in ranked(shape, arithmetic):
            file = tmp_path / f"{arithmetic}-{tile}.cu"
            text = written(name, arithmetic=arithmetic, tile=tile)
            file.write_text(re.search(r'_source = r"""\n(.*?)"""', text, re.DOTALL)[1])  # type: ignore[index]
            told = compiled_by_nvcc(file, "sm_90a")
            assert "serialized" not in told
            kernels = told.count("spill stores")
            assert told.count(", 0 bytes spill stores") == kernels == (4 if "k2_" in text else 3)


def test_heads_are_read_where_they_lie_and_results_written_as_they_are_read() -> None:
    found = attention(parse(LARGE["3/44"]))
    assert {one.leaf.node for one in (found.q, found.k, found.v)} == {"x"}
    assert [one.offset for one in (found.q, found.k, found.v)] == [0, 768, 1536]
    assert found.q.row == 2304 and found.row == 768
    assert found.how == "hide" and found.shares_mask
    text = written("3/44")
    assert "TOGETHER = 4" in text and "x.contiguous()" not in text.partition("class ModelNew")[2]


def test_weights_that_somebody_reads_stay_pytorchs() -> None:
    graph = parse(GRAPHS["sequence_first"])
    mean = next(node for node in graph.nodes if "mean" in node.op)
    read = replace(graph, outputs=(*graph.outputs, mean.name), structure="tuple")
    assert not any(is_attention(node) for node in plan(read).graph.nodes)


@pytest.mark.parametrize("name", MODULES)
def test_attention_that_no_kernel_covers_stays_as_it_was(name: str) -> None:
    graph = parse(GRAPHS[name])
    found = cut(graph, bias=True, long_rows=True)
    assert TITLE not in found.rules
    assert not any(is_attention(node) for node in found.graph.nodes)


def test_a_scale_that_is_not_positive_stays_pytorchs() -> None:
    graph = parse(GRAPHS["causal_short"])
    node = next(node for node in graph.nodes if "attention" in node.op)
    turned = replace(node, kwargs={**node.kwargs, "scale": -0.3})
    nodes = tuple(turned if one is node else one for one in graph.nodes)
    assert not plan(replace(graph, nodes=nodes)).kernels


def test_keys_that_change_before_the_values_are_read_stay_pytorchs() -> None:
    graph = parse(GRAPHS["plain"])
    at = next(i for i, node in enumerate(graph.nodes) if "matmul" in node.op) + 1
    change = Node("copy_", "aten.copy_.default", (Ref("k"), Ref("v")), {}, (graph.leaves["k"].spec,))
    before, after = graph.nodes[:at], graph.nodes[at:]
    assert attention(replace(graph, nodes=(*before[: at - 1], change, before[-1], *after)))
    changed = plan(replace(graph, nodes=(*before, change, *after)))
    assert not any(is_attention(node) for node in changed.graph.nodes)


@pytest.mark.parametrize(("shape", "ours"), [((), True), ((90,), True), ((1, 2, 1, 70, 90), False)], ids=str)
def test_a_mask_may_have_as_many_dimensions_as_scores(shape: tuple[int, ...], ours: bool) -> None:
    graph = parse(GRAPHS["added"])
    leaves = {**graph.leaves, "mask": replace(graph.leaves["mask"], spec=Spec(shape, "float32"))}
    found = plan(replace(graph, leaves=leaves))
    assert [type(kernel.program) for kernel in found.kernels] == [Attention] * ours


def test_a_mask_over_a_scale_that_it_cannot_be_divided_by_stays_pytorchs() -> None:
    node = next(node for node in parse(GRAPHS["added"]).nodes if "attention" in node.op)
    for scale, ours in ((1e-10, True), (1e-38, False)):
        graph = parse(GRAPHS["added"])
        turned = replace(node, kwargs={**node.kwargs, "scale": scale})
        found = plan(replace(graph, nodes=tuple(turned if one == node else one for one in graph.nodes)))
        assert bool(found.kernels) is ours


EMPTY = {"batch": ("[1, 2, ", "[0, 2, "), "keys": ("100", "0"), "queries": ("130", "0")}


@pytest.mark.parametrize("empty", EMPTY)
def test_attention_without_an_element_stays_pytorchs(empty: str) -> None:
    graph = parse(json.loads(json.dumps(GRAPHS["plain"]).replace(*EMPTY[empty])))
    assert not any(is_attention(node) for node in plan(graph).graph.nodes)


def test_attention_of_more_batches_than_letters_stays_pytorchs() -> None:
    text = json.dumps(GRAPHS["widest"]).replace("[1, 1, ", f"[{'1, ' * 12}")
    assert not plan(parse(json.loads(text))).kernels


def test_alike_attentions_are_one_kernel() -> None:
    first, second = (attention(parse(GRAPHS["causal"])) for _ in range(2))
    assert first.likeness == second.likeness
    assert first.likeness != attention(parse(GRAPHS["causal_short"])).likeness


def test_a_tile_fits_into_shared_memory() -> None:
    for graph in (*GRAPHS.values(), *LARGE.values()):
        of = attention(parse(graph)).shape
        for arithmetic in ("fp16x3", "fp16"):
            for tile in ranked(of, arithmetic).values():
                queries = tile.parts * tile.queries * tile.chunks * 128
                stage = tile.parts * 128 * (tile.keys * tile.chunks + tile.keys // 64 * tile.columns)
                assert tile.stages >= 2 and queries + tile.stages * stage <= ROOM


def test_our_attention_comes_first_where_it_is_predicted_to_be_faster() -> None:
    for name in ("3/31", "3/44", "128"):
        work = work_of(LARGE[name], H200, offers(H200, WAYS))
        assert isinstance(work, Regional)
        programs = [kernel.program for kernel in work.plan(work.space.starts[0]).kernels]
        [found] = [program for program in programs if isinstance(program, Attention)]
        assert found.arithmetics == ("fp16x3", "fp16")
        titles = [work.space.title(start) for start in work.space.starts[:3]]
        assert len(set(titles)) == len(titles) > 1


def test_attention_of_sixteen_bits_is_ours_without_ways_to_multiply_float32() -> None:
    graph = json.loads(json.dumps(LARGE["3/31"]).replace("float32", "bfloat16"))
    found = offered(Description(H200, graph, None, 1.0, 1.0, None, {}))
    work = work_of(graph, H200, found)
    assert isinstance(work, Regional)
    assert [kernel.program.variety for kernel in work.plan(work.space.starts[0]).kernels] == ["attention"]
    assert offered(Description(H200, LARGE["3/31"], None, 1.0, 1.0, None, {})) is None


def test_attention_of_sixteen_bits_stays_the_librarys_on_other_cards() -> None:
    device = replace(H200, build_arch="8.0")
    found = offered(Description(device, GRAPHS["bfloat16"], None, 1.0, 1.0, None, {}, ways=WAYS))
    assert found is not None and not found.half
    work = work_of(GRAPHS["bfloat16"], device, found)
    assert isinstance(work, Regional)
    programs = [kernel.program for kernel in work.plan(work.space.starts[0]).kernels]
    assert programs and not any(isinstance(program, Attention) for program in programs)


@pytest.mark.parametrize(
    "known",
    [
        offers(replace(H200, build_arch="9.0"), WAYS),
        offers(H200, [Way("three bfloat16 products", 1.0, "inside", None)]),
        replace(ALWAYS, library=1e12),
    ],
    ids=["no wgmma", "not exact enough", "a fast library"],
)
def test_attention_stays_the_librarys_where_it_is_as_good(known: Offers) -> None:
    with pytest.raises(NotCovered):
        work_of(LARGE["128"], H200, known)


def test_attention_of_many_terms_is_two_products_and_a_softmax() -> None:
    shape = Spec((4, 8, 512, 1024), "float32")
    graph = parse(LARGE["128"])
    leaves = {name: replace(leaf, spec=shape) for name, leaf in graph.leaves.items()}
    arguments = tuple(replace(one, leaf=leaves[one.name]) for one in graph.arguments)
    nodes = tuple(replace(node, outputs=(shape,)) for node in graph.nodes)
    wide = replace(graph, leaves=leaves, arguments=arguments, nodes=nodes)
    found = cut(wide, bias=True, long_rows=True, kinds=frozenset({"gpu"}), build=ALWAYS.build)
    assert [kernel.program.variety for kernel in found.kernels] == ["product", "softmax", "product"]


def test_attention_as_a_call_is_pytorchs_own() -> None:
    spec = Spec((2, 50, 3, 16), "float32")
    node = Node(
        "y", "aten.attention.default", ("bamd,band,bane->bmae", [1, 2, 3], "causal", 0.25, 0.0, True), {}, (spec,)
    )
    text = called(node, repr, "cpu")
    assert text.startswith('torch.einsum("bame->bmae", torch.nn.functional.scaled_dot_product_attention(')
    assert 'torch.einsum("bamd->bamd", 1)' in text and text.endswith("is_causal=True, scale=0.25))")
