"""The plan of a lookup: pure, and what the library makes of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.retrieval import served
from rag import Library, Situation
from rag.corpus_path import CORPUS
from rag.library import BUDGET
from rag.retrieval.passage import Passage, in_parts, within
from rag.retrieval.plan import bottlenecks_in, families_of, operators_in, plain_error, plan
from tests.support.paths import ROOT

LOG = """/tmp/build/k.cu(41): error: identifier "__shfl_down" is undefined
/tmp/build/k.cu(57): error: identifier "__shfl_down" is undefined
ptxas /tmp/build/k.ptx, line 88; fatal   : Ptx assembly aborted at 0x7f3a
2 errors detected in the compilation of "/tmp/build/k.cu".
"""


@pytest.fixture
def library(corpus: Path, tmp_path: Path) -> Library:
    return Library.open(tmp_path / "cache", "lexical", corpus=corpus)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """The corpus that is shipped, indexed once."""
    with Library.open(tmp_path_factory.mktemp("cache"), "lexical") as library:
        yield library


def test_a_profile_fills_technique_operator_stall_and_pitfall_slots() -> None:
    known = Situation(
        families=("gemm",),
        operators=("mm",),
        arch="sm_90",
        language="cuda",
        signals=("bank conflicts 8-way", "stall_mio_throttle 40 %"),
    )
    slots = {slot.name: slot for slot in plan(known)}
    assert set(slots) == {"technique", "operator", "stall", "pitfall", "own"}
    assert {query.arch for slot in slots.values() for query in slot.queries} == {"sm_90"}
    written = {slot.name: slot for slot in plan(replace(known, idea="Padded tiles"))}
    assert written["example"].queries[0].kinds == ("kernel",)
    stalled = plan(Situation(operators=("mm",), stalls=("30 % barrier", "20 % long_scoreboard")))
    assert [slot.count for slot in stalled if slot.name == "stall"] == [2]


def test_before_a_profile_operator_family_and_roofline_class_are_asked_for() -> None:
    slots = plan(Situation(families=("norm",), operators=("layer_norm",), bottlenecks=("dram-bw",)))
    texts = [query.text for slot in slots for query in slot.queries]
    assert any("layer_norm" in text for text in texts)
    assert any("DRAM" in text for text in texts)


def test_a_log_leaves_room_only_for_its_error_without_paths_and_numbers() -> None:
    [slot] = plan(Situation(families=("gemm",), operators=("mm",), signals=("dram 90 %",), errors=LOG))
    assert slot.name == "error"
    assert slot.queries[0].text.splitlines() == [
        'error: identifier "__shfl_down" is undefined',
        "ptxas , ; fatal : Ptx assembly aborted at",
        'errors detected in the compilation of " ".',
    ]
    assert plain_error("no word of a fault\nnor here") == "no word of a fault\nnor here"
    assert plain_error("\n") == ""


def test_profiles_name_bottlenecks_and_sources_name_operators() -> None:
    assert bottlenecks_in(["8-way bank conflicts", "DRAM 91 %"]) == ("smem", "dram-bw")
    source = "y = F.conv2d(x, w)\nz = (y @ v).sum(dim=1)\nself.norm = nn.LayerNorm(8)\nprint(x.size(0))"
    assert operators_in(source) == ("conv2d", "matmul", "sum", "LayerNorm")
    assert families_of(("conv2d", "matmul", "sum", "LayerNorm", "relu")) == (
        *("conv", "gemm", "reduction", "norm", "pointwise"),
    )


def test_no_page_comes_twice_and_each_says_its_slot(library: Library) -> None:
    with library:
        known = Situation(operators=("matrix product",), arch="sm_90", language="cuda", signals=("wasted sectors",))
        found = library.consult(known).passages
        assert len({passage.page for passage in found}) == len(found)
        assert [(p.page, p.slot) for p in found] == [("coalescing", "technique"), ("wgmma", "technique")]


def test_what_siblings_were_given_or_the_lineage_tried_comes_last_or_not(library: Library) -> None:
    with library:
        known = Situation(signals=("matrix product", "arrays of structs"))
        first = library.consult(known).passages
        others = library.consult(Situation(signals=known.signals, served=(first[0].id,))).passages
        assert others[0].page != first[0].page
        left = library.consult(Situation(signals=known.signals, tried=("coalesced access",))).passages
        assert "coalescing" not in {passage.page for passage in left if passage.slot == "technique"}


def test_an_example_is_a_kernel_in_the_language(library: Library) -> None:
    with library:
        known = Situation(("softmax",), ("softmax",), arch="x86_64", language="cpp", idea="Rows in registers")
        assert [(p.slot, p.kind) for p in library.consult(known).passages] == [("example", "kernel")]


def test_the_budget_holds_and_what_is_cut_says_so() -> None:
    text = "\n\n".join(f"paragraph {n} of a long passage" for n in range(100))
    one, two, three = (Passage(name, name, "", "", text, "") for name in "abc")
    kept = within((one, two, three), len(text) + 500)
    assert [passage.id for passage in kept] == ["a", "b"]
    assert kept[0].text == text
    assert len(kept[1].text) <= 500
    assert kept[1].text.endswith("more characters]")


def test_no_excerpt_ends_within_code_or_before_its_formula() -> None:
    code = "```cuda\nfor (;;) {\n\n  run();\n}\n```"
    page = f"First.\n\nFor each tile:\n\n    V = B^T d B\n\nThen the kernel.\n\n{code}\n\nThe trap."
    for size in range(len(page) + 1):
        cut = in_parts(page, size)
        assert len(cut) <= size and cut.count("```") in (0, 2)
        body = cut.partition("\n[...")[0]
        assert page.startswith(body) and not body.endswith(":") and ("run" not in body or code in body)
    assert in_parts(page, len(page)) == page and in_parts(page, 20) == ""


def test_a_kernel_and_a_page_that_an_idea_names_are_given_whole_or_not_at_all() -> None:
    text = "\n\n".join("words and more words" for _ in range(40))
    kernel, page = Passage("a", "a", "", "", text, "", kind="kernel"), Passage("b", "b", "", "", text, "", slot="named")
    short = Passage("c", "c", "", "", "short", "")
    assert [one.id for one in within((kernel, page, short), 600)] == ["c"]
    assert [one.id for one in within((kernel, page, short), 2 * len(text) + 5)] == ["a", "b", "c"]


def test_a_kernel_that_is_too_long_to_be_given_whole_is_no_example(shipped: Library) -> None:
    for arch in ("sm_80", "sm_90"):
        about = Situation(("gemm",), ("linear",), ("float32",), arch, "cuda", idea="Do less")
        found = [one for one in shipped.consult(about, 10**6).passages if one.kind == "kernel"]
        assert all(one.text.strip() in (CORPUS / one.source).read_text() and one.heading == "" for one in found)
        assert len(found) == (arch == "sm_90"), "what sm_80 has is long"


IDEAS = [json.loads(row) for row in (ROOT / "benchmarks" / "queries" / "ideas.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", IDEAS, ids=lambda case: case["id"])
def test_code_gets_the_pages_that_its_idea_names_whole_and_no_others(case: dict[str, Any], shipped: Library) -> None:
    pages = served(shipped, case)
    assert all(pages.get(topic) for topic in case["topics"]), pages
    assert not set(pages) & set(case["avoid"])


@pytest.mark.parametrize(
    ("arch", "named"),
    [
        ("sm_80", []),
        ("x86_64", []),
        ("sm_90", ["clusters-dsmem", "kernels/gemm/level_04_cuda"]),
        ("sm_100", ["clusters-dsmem"]),
    ],
)
def test_what_an_idea_names_and_the_device_lacks_is_not_looked_up(
    arch: str, named: list[str], shipped: Library
) -> None:
    language = "cpp" if arch == "x86_64" else "cuda"
    about = Situation(("gemm",), ("linear",), ("float32",), arch, language, idea="Multicast the tile to a cluster")
    found = shipped.consult(about).passages
    assert [one.page for one in found if one.slot == "named"] == named


def test_whoever_has_ideas_gets_the_prose_of_whole_pages(shipped: Library) -> None:
    known = Situation(("gemm",), ("linear",), ("float32",), "sm_90", "cuda", ("compute",))
    given = shipped.consult(known).passages
    assert sum(len(passage.text) for passage in given) <= BUDGET["ideas"]
    first = given[0]
    assert first.page == "split-precision-products" and "```" not in first.text
    assert "| two bfloat16 parts | 3 |" in first.text and "lines of code]" in first.text


@pytest.mark.parametrize(
    ("operators", "best"),
    [
        (("depthwise_conv2d",), "conv-depthwise"),
        (("cross_entropy_loss",), "loss-fusion"),
        (("softmax",), "online-softmax"),
        (("add", "layer_norm"), "welford-norm"),
        (("sum",), "axis-reduction"),
        (("cumsum",), "scan-prefix"),
        (("lstm",), "recurrent-persistent"),
        (("gru", "linear"), "recurrent-persistent"),
        (("topk",), "argmax-topk-sort"),
        (("embedding",), "gather-scatter-embedding"),
        (("transpose",), "transpose-layout"),
        (("scaled_dot_product_attention",), "flash-attention"),
    ],
)
def test_the_best_page_on_the_operator_and_the_example_are_given_whole(
    operators: tuple[str, ...], best: str, shipped: Library
) -> None:
    about = Situation(families_of(operators), operators, arch="sm_90", language="cuda", bottlenecks=("dram-bw",))
    given = {passage.page: passage for passage in shipped.consult(about, 10**6).passages}
    assert given[best].text.splitlines()[-1] in (CORPUS / given[best].source).read_text().splitlines()
    assert len(given) >= 8, "the others are passages, and there is room for them"
    code = {passage.page: passage for passage in shipped.consult(replace(about, idea="Do less"), 10**6).passages}
    whole = [code[best], *(passage for passage in code.values() if passage.kind == "kernel")]
    assert all(passage.text.strip() in (CORPUS / passage.source).read_text() for passage in whole)
    assert all(len(passage.text) > 2000 for passage in whole), [len(passage.text) for passage in whole]


@pytest.mark.parametrize(
    ("arch", "dtype", "whole"),
    [
        ("sm_90", "float32", ["split-precision-products", "fixed-point-products", "wgmma-hopper"]),
        ("sm_80", "float32", ["split-precision-products", "tensor-core-mma"]),
        ("sm_89", "bfloat16", ["tensor-core-mma"]),
        ("sm_90", "bfloat16", ["wgmma-hopper"]),
    ],
)
def test_a_product_bound_by_arithmetic_gets_the_deciding_pages_first_and_whole(
    arch: str, dtype: str, whole: list[str], shipped: Library
) -> None:
    about = Situation(("gemm", "pointwise"), ("linear", "relu"), (dtype,), arch, "cuda", ("compute",))
    given = shipped.consult(about, 10**6).passages
    moved = shipped.consult(replace(about, bottlenecks=("dram-bw",))).passages
    assert [passage.page for passage in given[: len(whole)]] == whole
    assert all(passage.heading == "" and len(passage.text) > 1000 for passage in given[: len(whole)])
    assert moved[0].page != whole[0]
