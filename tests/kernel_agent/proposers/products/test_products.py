"""Products by split operands: the kernels' own index maps, run on the CPU with tensor cores in emulation."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Kernel, Plan
from kernel_agent.proposers.regions.works import Regional, work_of
from kernel_agent.proposers.templates.arithmetic import ARITHMETICS, DIGITAL, Offers, offers
from kernel_agent.proposers.templates.emit_product import CUT, DIGITS, TILES, UNFOLDED, scratch
from kernel_agent.proposers.templates.graph import parse
from kernel_agent.proposers.templates.product import Product
from kernel_agent.proposers.templates.product_space import product_space
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS, Source
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.products.modules import source
from tests.support.edits import edit
from tests.support.emitted import compiled_by_nvcc, judged, on_cpu

HERE = Path(__file__).parent
GRAPHS: dict[str, Any] = json.loads((HERE / "graphs.json").read_text())
LARGE = json.loads(re.sub(r"\b(132|140|68)\b", lambda n: str(int(n[0]) * 32), json.dumps(GRAPHS["fours"])))
PEAKS = {"fp32_tflops": 51.6, "tf32_tflops": 411.0, "bf16_tflops": 789.0}
GPU = Device("cuda", "a GPU", "sm_90", 0, 2600.0, peaks=PEAKS)
HOPPER = replace(GPU, build_arch="9.0a")
H200 = replace(HOPPER, copy_gbps=4286.0)
CPU = Device("cpu", "a processor", "x86_64-avx2", 2, 20.0)
SPLIT = [Way("three bfloat16 products", 12.0, "inside", None), Way("three TF32 products", 1.0, "inside", None)]
ALWAYS = Offers({one.name: 1e9 for one in ARITHMETICS}, 1e-6, 1e9)  # whatever the size
GENES = {"arithmetic": "bf16x3", "tile": "64x64", "stages": 3, "split": 1, "group": 8}


def plan(name: str) -> Plan:
    return cut(parse(GRAPHS[name]), bias=False, long_rows=True, build=ALWAYS.build)


def written(name: str, **genes: int | str) -> str:
    """A candidate whose products all have these genes."""

    def emit(program: Routine) -> Source:
        own = isinstance(program, Product)
        target = TARGETS["cuda"]
        return target.source(program, {**GENES, **genes} if own else target.space(program, GPU).starts[0])

    return module.assemble(source(name), name, plan(name), emit, TARGETS["cuda"].flags({}), TARGETS["cuda"])


def products(name: str) -> list[Product]:
    return [kernel.program for kernel in plan(name).kernels if isinstance(kernel.program, Product)]


@pytest.mark.parametrize(
    ("name", "genes"),
    [
        ("tail", {}),
        *(
            pytest.param(name, genes, marks=pytest.mark.long)
            for name, genes in [
                ("odd", {"tile": "64x64", "group": 1}),
                ("even", {"tile": "64x128", "stages": 4}),
                ("fours", {"tile": "128x128", "arithmetic": "tf32x3"}),
                ("fours", {"tile": "128x64", "stages": 2}),
                ("stacks", {"tile": "32x128", "arithmetic": "tf32x3"}),
                ("bands", {"tile": "64x64", "group": 2}),
                ("scores", {"tile": "128x32", "arithmetic": "tf32x3"}),
                ("gathered_heads", {"tile": "32x128"}),
                ("attended", {"tile": "32x128", "arithmetic": "tf32x3"}),
                ("long_sums", {"tile": "64x64", "split": 3}),
                ("long_sums", {"tile": "32x128", "split": 1, "stages": 5}),
                ("vectors", {}),
                ("tail", {"tile": "wgmma"}),
                ("fours", {"tile": "wgmma", "stages": 2}),
                ("batches", {"tile": "wgmma"}),
                ("bands", {"tile": "wgmma", "group": 1}),
                ("long_sums", {"tile": "wgmma", "split": 3}),
                ("long_sums", {"tile": "wgmma", "split": 3, "arithmetic": "tf32x3"}),
                ("tail", {"tile": "wgmma", "arithmetic": "int8x3"}),
                ("fours", {"tile": "wgmma", "arithmetic": "int8x3"}),
                ("batches", {"tile": "wgmma", "arithmetic": "int8x3"}),
                ("long_sums", {"tile": "wgmma", "split": 3, "arithmetic": "int8x3"}),
            ]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())) or "default",
)
def test_products_equal_pytorch_in_emulation(tmp_path: Path, name: str, genes: dict[str, int | str]) -> None:
    times = 8 if genes.get("arithmetic") == DIGITS else 1  # a step is a part of a row's largest magnitude
    assert judged(name, source(name), on_cpu(written(name, **genes)), tmp_path, times) == {}


@pytest.mark.long
def test_a_wrong_step_or_digit_is_seen_in_emulation(tmp_path: Path) -> None:
    text = written("tail", tile=CUT, arithmetic=DIGITS)
    for old, new in (("(FIRST ? 0 : ROWS_A) + batch * ROWS", "batch * ROWS"), ("b + LOW_B + 2 * k", "b + 2 * k")):
        assert judged("tail", source("tail"), on_cpu(text.replace(old, new)), tmp_path, 8) != {}


@pytest.mark.long
@pytest.mark.parametrize("tile", ["64x64", CUT, UNFOLDED])
@pytest.mark.parametrize("arithmetic", ["bf16", "fp16", "tf32"])
def test_one_product_of_a_short_format_is_exact_for_small_integers(tmp_path: Path, arithmetic: str, tile: str) -> None:
    candidate = on_cpu(written("whole_numbers", arithmetic=arithmetic, tile=tile))
    assert judged("whole_numbers", source("whole_numbers"), candidate, tmp_path) == {}


@pytest.mark.long
def test_tiles_are_not_overwritten_while_a_warp_reads_them(tmp_path: Path) -> None:
    early = on_cpu(written("long_sums", stages=2)).replace('"-pthread"', '"-pthread", "-DCOPIES_ARRIVE_AT_ONCE"')
    assert judged("long_sums", source("long_sums"), early, tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "wait", ["ptx::wait(&full[i % STAGES], i / STAGES & 1);", "ptx::wait(&empty[s], (i / STAGES & 1) ^ 1);"]
)
def test_a_wait_for_boxes_that_lacks_is_seen_in_emulation(tmp_path: Path, wait: str) -> None:
    late, text = "full" in wait, written("long_sums", tile=CUT, split=1, stages=2)
    candidate = on_cpu(edit(text, wait, "", 2), late)
    assert judged("long_sums", source("long_sums"), on_cpu(text, late), tmp_path) == {}
    try:
        wrong = judged("long_sums", source("long_sums"), candidate, tmp_path)
    except AssertionError as ended:
        wrong = {"hangs": ""} if "the block hangs" in str(ended) else {}
    assert wrong


@pytest.mark.long
def test_a_wait_too_short_is_seen_in_emulation(tmp_path: Path) -> None:
    text = written("tail")
    assert "ptx::wait<STAGES - 2>();" in text
    wrong = text.replace("ptx::wait<STAGES - 2>();", "ptx::wait<STAGES - 1>();")
    assert judged("tail", source("tail"), on_cpu(wrong), tmp_path) != {}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("name", "genes"),
    [
        ("odd", {"tile": "128x128"}),
        ("fours", {"tile": "128x128", "arithmetic": "tf32x3"}),
        ("stacks", {"tile": "64x64"}),
        ("long_sums", {"tile": "32x128", "split": 3}),
        *(
            ("long_sums", {"tile": tile, "split": 3, "arithmetic": one.name})
            for one in (*ARITHMETICS, DIGITAL)
            for tile in (CUT, UNFOLDED)
            if tile != UNFOLDED or not one.name.endswith("x3")
        ),
        *(("whole_numbers", {"tile": tile, "arithmetic": "fp16"}) for tile in TILES if not tile.startswith(CUT)),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_products_compile_without_spills(tmp_path: Path, name: str, genes: dict[str, int | str], arch: str) -> None:
    if str(genes["tile"]).startswith(CUT) and arch != "sm_90a":
        pytest.skip("instructions of sm_90a")
    file = tmp_path / "kernels.cu"
    file.write_text(re.search(r'_source = r"""\n(.*?)"""', written(name, **genes), re.DOTALL)[1])  # type: ignore[index]
    told = compiled_by_nvcc(file, arch)
    assert "are serialized" not in told
    assert told.count(", 0 bytes spill stores") == told.count("spill stores") > 0


def test_transposes_and_stacks_become_strides() -> None:
    first, second, third, fourth = products("odd")
    assert [(one.a.term, one.a.row) for one in (first, second)] == [(1, 45), (37, 1)]
    assert [(one.b.term, one.b.row) for one in (first, third, fourth)] == [(51, 1), (1, 45), (1, 45)]
    assert [one.depth for one in products("odd")] == [45] * 4
    [scores] = products("scores")
    assert (scores.batch, scores.rows, scores.columns, scores.depth) == (8, 10, 10, 8)
    assert scores.a.batch == scores.b.batch == ((2, 960), (4, 8))
    assert (scores.a.offset, scores.b.offset) == (0, 32)
    assert (scores.a.row, scores.a.term, scores.b.row, scores.b.term) == (96, 1, 96, 1)


def test_rows_that_lie_apart_become_a_batch() -> None:
    turned = products("stacks")[3]
    assert (turned.batch, turned.rows, turned.columns, turned.depth) == (3, 20, 12, 9)
    assert (turned.a.batch, turned.a.row, turned.a.term, turned.b.batch) == (((3, 180),), 1, 20, ((3, 0),))


def test_an_operand_that_no_strides_describe_is_copied_by_pytorch() -> None:
    [product] = products("gathered_heads")
    assert (product.rows, product.columns, product.depth, product.a.leaf.node) == (20, 68, 72, "view")
    assert ".contiguous()" in written("gathered_heads").partition("class ModelNew")[2]


def test_what_an_operand_is_computed_of_is_another_kernel() -> None:
    found = [step.nodes for step in plan("attended").steps if isinstance(step, Kernel)]
    assert found == [("matmul", "mul"), ("softmax",), ("matmul_1",)]


def test_tails_and_triangles_are_one_kernel_with_their_product() -> None:
    found = [[step.nodes for step in plan(name).steps if isinstance(step, Kernel)] for name in ("tail", "bands")]
    assert found[0] == [("linear", "gelu", "mul", "add", "clamp")]
    assert [len(nodes) for nodes in found[1]] == [2, 3, 2]
    assert [one.band for one in products("bands")] == [(0, 150), (-150, 3), (-70, 150)]


def test_a_product_with_a_vector_is_a_fold() -> None:
    kernels = plan("vectors").kernels
    assert [kernel.program.family for kernel in kernels] == ["reduction"] * 4
    assert "a product with a vector is a fold" in plan("vectors").rules


def test_a_sum_over_the_outputs_of_a_product_reads_its_weights_once(tmp_path: Path) -> None:
    work = work_of(GRAPHS["summed"], CPU)
    assert isinstance(work, Regional)
    steps = [step.op for step in work.plan({}).steps if not isinstance(step, Kernel)]
    assert not any("linear" in op or "matmul" in op for op in steps)
    folds = [
        k.program for k in work.plan({}).kernels if isinstance(k.program, Program) and k.program.family == "reduction"
    ]
    assert sum(program.strided for program in folds) == 3, "weights of two layers and a transposed matrix"
    text = work.write(source("summed"), work.space.starts[0])
    assert "# Rule: a sum over the outputs of a product is a product with the sums of its weights.\n" in text
    assert judged("summed", source("summed"), text, tmp_path) == {}


def test_a_product_is_taken_only_where_the_rates_promise_more_than_the_library() -> None:
    taken = offers(HOPPER, SPLIT)
    assert taken is not None and list(taken.rates) == ["bf16x3", "tf32x3"]
    work = work_of(LARGE, HOPPER, taken)
    assert isinstance(work, Regional) and len(work.plan({}).kernels) == 4
    with pytest.raises(NotCovered) as refused:
        work_of(GRAPHS["fours"], HOPPER, taken)  # a launch takes longer than either
    assert all("the library's product is predicted to be as fast" in why for why in refused.value.kept.values())
    fast = replace(HOPPER, peaks={**PEAKS, "fp32_tflops": 400.0})
    with pytest.raises(NotCovered) as refused:
        work_of(LARGE, fast, offers(fast, SPLIT))
    assert all("the library's product" in why for why in refused.value.kept.values())


@pytest.mark.parametrize(
    ("device", "ways"),
    [
        (CPU, SPLIT),
        (GPU, []),
        (GPU, [Way("three bfloat16 products", 900.0, "outside", None)]),
        (Device("cuda", "a GPU", "sm_75", 0, 600.0, peaks=PEAKS), SPLIT),
        (Device("cuda", "a GPU", "sm_90", 0, 2600.0), SPLIT),
    ],
    ids=["cpu", "no ways", "outside", "no tensor cores for bfloat16", "no rates"],
)
def test_products_stay_the_librarys_where_nothing_is_promised(device: Device, ways: list[Way]) -> None:
    assert offers(device, ways) is None
    with pytest.raises(NotCovered) as refused:
        work_of(GRAPHS["odd"], device, offers(device, ways))
    assert {*refused.value.kept.values()} == {"no template covers aten.matmul.default."}


def test_what_is_only_near_enough_is_tried_after_what_is_inside() -> None:
    near = offers(HOPPER, [Way("three bfloat16 products", 50.0, "near", None), SPLIT[1]])
    assert near is not None and list(near.rates) == ["tf32x3", "bf16x3"]
    starts = work_of(LARGE, HOPPER, near).space.starts
    assert [start["product_arithmetic"] for start in starts[:3]] == ["tf32x3", "tf32x3", "bf16x3"]


def test_digits_are_tried_by_wgmma_beside_what_is_known_to_be_fast() -> None:
    whole = replace(HOPPER, peaks={**PEAKS, "int8_tflops": 1454.0})
    ways = [*SPLIT, Way("three int8 products of fixed-point digits", 6.5, "inside", None)]
    starts = work_of(LARGE, whole, offers(whole, ways)).space.starts
    tried = [(start["product_arithmetic"], start["product_tile"]) for start in starts]
    assert tried[0][0] == "bf16x3" and (DIGITS, CUT) in tried[:5]
    assert all(tile == CUT for arithmetic, tile in tried if arithmetic == DIGITS)
    deep = work_of(multiplied(4096, 4096, 1 << 17), whole, offers(whole, ways)).space.starts
    assert DIGITS not in {start["product_arithmetic"] for start in deep}, "a sum of 32 bits would overflow"
    older = replace(whole, build_arch="9.0")
    assert DIGITS not in offers(older, ways).rates, "wgmma is not built for it"  # type: ignore[union-attr]
    lone = offers(whole, ways[2:])
    assert lone is not None and work_of(LARGE, whole, lone).space.starts[0]["product_tile"] == CUT


@pytest.mark.parametrize(
    ("error", "fits", "allowed", "wanted"),
    [
        (20.0, "inside", [64.0], ["bf16x3", "tf32x3"]),
        (30.0, "inside", [64.0], ["tf32x3", "bf16x3"]),
        (70.0, "near", [64.0], ["tf32x3"]),
        (500.0, "inside", [4216.0, 64.0], ["bf16x3", "tf32x3"]),
        (160.0, "near", [64.0, 148.0], ["tf32x3"]),
        (900.0, "outside", [64.0], ["tf32x3"]),
        (None, "near", [64.0], ["tf32x3"]),
    ],
)
def test_what_is_predicted_to_err_too_much_is_last_or_not_taken(
    error: float | None, fits: str, allowed: list[float], wanted: list[str]
) -> None:
    found = offers(HOPPER, [Way("three bfloat16 products", error, fits, None), SPLIT[1]], allowed=allowed)
    assert found is not None and list(found.rates) == wanted


def test_of_two_ways_as_fast_the_more_exact_one_comes_first() -> None:
    ways = [Way("one bfloat16 product", 20.0, "inside", None), Way("one float16 product", 2.5, "inside", None)]
    found = offers(HOPPER, ways)
    assert found is not None and list(found.rates) == ["fp16", "bf16"]


def multiplied(rows: int, columns: int, depth: int) -> dict[str, Any]:
    """The graph of a product of two matrices."""
    shapes = {"x": [rows, depth], "y": [depth, columns]}
    given = [{"name": n, "shape": s, "dtype": "float32", "strides": [s[1], 1]} for n, s in shapes.items()]
    call = {"name": "mm", "op": "aten.mm.default", "args": [{"node": "x"}, {"node": "y"}], "kwargs": {}}
    nodes = [{**call, "outputs": [{"shape": [rows, columns], "dtype": "float32"}]}]
    return {"inputs": given, "parameters": [], "nodes": nodes, "outputs": ["mm"], "output_structure": "tensor"}


def test_a_product_of_few_rows_is_not_worth_the_cutting_of_its_operands() -> None:
    with pytest.raises(NotCovered):
        work_of(multiplied(64, 8192, 8192), H200, offers(H200, SPLIT))
    for rows in (128, 1024):
        start = work_of(multiplied(rows, 8192, 8192), H200, offers(H200, SPLIT)).space.starts[0]
        assert (start["product_arithmetic"], start["product_tile"]) == ("bf16x3", CUT)


def test_a_long_sum_of_few_results_is_cut_where_three_products_are_needed() -> None:
    ways = [Way("one float16 product", 2.0, "inside", None)]
    tiles = [
        work_of(multiplied(256, 256, 1 << 19), H200, offers(H200, some)).space.starts[0]["product_tile"]
        for some in (ways, SPLIT)
    ]
    assert tiles == ["128x128", CUT]


def test_operands_are_cut_beforehand_where_hopper_multiplies_many_terms() -> None:
    [*kernels] = cut(parse(LARGE), bias=False, long_rows=True, build=ALWAYS.build).kernels
    for device, wanted in ((HOPPER, "wgmma"), (GPU, "128x128"), (replace(GPU, arch="sm_80"), "128x128")):
        assert [product_space(kernel.program, device).starts[0]["tile"] for kernel in kernels] == [wanted] * 4
    [first, *_] = products("fours")
    assert not any(str(genes["tile"]).startswith(CUT) for genes in product_space(first, HOPPER).every())


def test_every_gene_of_a_product_gives_another_kernel() -> None:
    work = work_of(GRAPHS["long_sums"], GPU, ALWAYS)
    assert {"product_arithmetic", "product_tile", "product_stages", "product_split", "product_group"} <= {
        gene.name for gene in work.space.genes
    }
    first, *others = work.space.starts
    texts = {work.write(source("long_sums"), genes) for genes in (first, *others)}
    assert len(texts) == len(work.space.starts) >= 6
    assert {work.space.title(genes) for genes in work.space.every()} >= {
        work.space.title(genes) for genes in work.space.starts
    }


def test_parts_of_sums_get_memory_to_wait_in() -> None:
    assert [scratch(one, {**GENES, "split": 3}) for one in products("long_sums")] == [3 * 34 * 30] * 2
    text = written("long_sums", split=3)
    assert f"scratch = torch.empty({3 * 34 * 30}, dtype=torch.float32, device=in0.device)" in text
    assert "scratch" not in written("long_sums").partition("def _kernels_ready")[2]
    cut_first, _ = (scratch(one, {**GENES, "tile": CUT}) for one in products("long_sums"))
    assert cut_first == (34 + 30) * 1000
