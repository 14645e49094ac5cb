"""What templates try first, by descriptions of KernelBench's problems that a server with an H200 gave (recorded.json).

The times behind it stand in the templates, where they order what can be varied.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.proposers.regions.reading import reads_apart
from kernel_agent.proposers.regions.works import Regional
from kernel_agent.proposers.templates.genes import Genes
from kernel_agent.proposers.templates.product import Product
from kernel_agent.proposers.templates.proposer import Templates
from kernel_agent.run.brief import Brief
from kernel_agent.run.precision import ErrorUnit, Way
from kernel_agent.run.types import Description, Device, Problem, Trial

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded.json").read_text())
H200 = Device(**RECORDED["device"])
FASTEST: dict[str, Genes] = {  # of what was measured, each within 1 % of the best
    "1/1": {"product_arithmetic": "fp16", "product_tile": "wgmma-256"},
    "1/6": {"product_arithmetic": "fp16", "product_tile": "128x128", "product_split": 64},
    "1/11": {"product_arithmetic": "bf16x3", "product_tile": "wgmma"},
    "1/16": {"product_arithmetic": "fp16", "product_tile": "wgmma-256"},
    "1/21": {"unroll": 2, "threads": 128, "load": "stream", "store": "stream", "grid": "exact"},
    "1/36": {"row": "registers", "load": "cached", "store": "plain", "threads": 4, "together": 64},
    "1/41": {"along": 8, "threads": 256},
    "1/46": {"down": 4, "threads": 256},
    "1/49": {"load": "cached", "threads": 4, "together": 64},
    "1/51": {"across": 128, "unroll": 4, "threads": 512},
    "1/89": {"items": 4, "unroll": 2, "store": "plain", "threads": 128},
}


def described(name: str, graph: dict[str, Any] | None = None) -> Description:
    """What the server said of a problem, such as 1/21: problem 21 of level 1."""
    known = RECORDED["problems"][name]
    ways = tuple(Way(*way, None) for way in known["ways"])
    units = tuple(ErrorUnit("output", "as drawn", 1.0, 1.0, 1.0, allowed) for allowed in known["allowed"])
    empty = Description(H200, graph or known["graph"], None, 1.0, 1.0, None, {})
    return replace(empty, arithmetic=known["arithmetic"], ways=ways, precision=units)


async def first_ideas(count: int, of: Description) -> list[Genes]:
    """What the first ideas choose."""
    brief = Brief(Problem("case", "", "cuda"), of, 1, Trial(None, 0, 0, None, ""), None, None)
    return [dict(idea.change or {}) for idea in await Templates(of).ideas(brief, count)]


@pytest.mark.parametrize("name", FASTEST)
async def test_the_first_three_ideas_hold_what_was_fastest(name: str) -> None:
    ideas = await first_ideas(3, described(name))
    assert any(FASTEST[name].items() <= genes.items() for genes in ideas)


async def test_large_pointwise_work_begins_with_plain_blocks_that_end() -> None:
    first, second, *others = await first_ideas(4, described("1/21"))
    plain = {"load": "cached", "store": "plain", "grid": "exact", "vector": 4, "unroll": 1, "threads": 128}
    assert first == plain and second == {**plain, "store": "stream"}
    assert all(genes["grid"] == "exact" for genes in others)


async def test_pointwise_work_that_the_last_cache_holds_has_more_in_flight() -> None:
    small = json.loads(json.dumps(RECORDED["problems"]["1/21"]["graph"]).replace("393216", "64"))
    first, second = await first_ideas(2, described("1/21", small))
    assert (first["unroll"], second["unroll"]) == (4, 1)


@pytest.mark.parametrize("name", ["1/21", "1/36", "1/49"])
async def test_blocks_that_loop_are_not_among_the_first_ideas(name: str) -> None:
    work = Templates(described(name))._work
    ideas = await first_ideas(4, described(name))
    assert not any("resident" in work.space.title(genes) for genes in ideas)


@pytest.mark.parametrize("name", FASTEST)
async def test_the_first_ideas_are_kernels_that_differ(name: str) -> None:
    work = Templates(described(name))._work
    ideas = await first_ideas(4, described(name))
    texts = [re.sub(r"(?m)^# kernel: .*$", "", work.write("", genes)) for genes in ideas]
    assert len({*texts}) == 4


async def test_few_long_columns_are_shared_by_as_many_threads_as_fill_the_device() -> None:
    work = Templates(described("2/39"))._work
    assert "32 threads a result, 32 results a block" in work.space.title(work.space.starts[0])


@pytest.mark.parametrize(("name", "wrong"), [("1/1", "bf16"), ("1/11", "fp16"), ("1/16", "bf16")])
async def test_a_way_that_was_predicted_to_be_wrong_is_not_tried(name: str, wrong: str) -> None:
    ideas = await first_ideas(12, described(name))
    assert ideas and wrong not in {genes["product_arithmetic"] for genes in ideas}


async def test_a_way_that_may_be_wrong_comes_after_two_that_are_right() -> None:
    ideas = await first_ideas(4, described("2/9"))
    assert [genes["product_arithmetic"] for genes in ideas] == ["bf16x3", "bf16x3", "fp16", "int8x3"]


@pytest.mark.parametrize("name", ["1/1", "1/11", "1/16", "2/9", "2/39"])
async def test_hopper_multiplies_by_its_own_instructions_first(name: str) -> None:
    ideas = await first_ideas(3, described(name))
    assert all(str(genes["product_tile"]).startswith("wgmma") for genes in ideas)
    assert not any(genes.get("products") == "library" for genes in ideas)


async def test_no_idea_folds_rows_whose_elements_lie_apart() -> None:
    templates = Templates(described("2/19"))
    assert isinstance(templates._work, Regional)
    ideas = await first_ideas(12, described("2/19"))
    assert {"kernel", "pytorch"} == {genes["lone"] for genes in ideas}
    kernels = [kernel for genes in ideas for kernel in templates._work.plan(genes).kernels]
    assert kernels and not any(reads_apart(kernel.program) for kernel in kernels)


async def test_what_leaves_kernels_to_pytorch_is_not_among_the_first_ideas() -> None:
    ideas = await first_ideas(4, described("2/19"))
    assert [genes["lone"] for genes in ideas] == ["kernel"] * 4
    assert {genes["layout"] for genes in ideas} == {"kernel", "last"}


@pytest.mark.parametrize("name", ["2/9", "2/39"])
async def test_kernels_of_products_are_all_tried_before_the_library(name: str) -> None:
    ideas = await first_ideas(4, described(name))
    assert [genes["products"] for genes in ideas] == ["kernel"] * 4


async def test_products_that_only_a_way_near_the_edge_makes_fast_come_second() -> None:
    shallow = json.dumps(RECORDED["problems"]["2/9"]["graph"]).replace("1024", "65536").replace("8192", "192")
    ideas = await first_ideas(4, described("2/9", json.loads(shallow)))
    assert [genes["products"] for genes in ideas] == ["kernel", "bold", "kernel", "kernel"]
    work = Templates(described("2/9", json.loads(shallow)))._work
    assert isinstance(work, Regional)
    products = [sum(isinstance(k.program, Product) for k in work.plan(genes).kernels) for genes in ideas[:2]]
    assert products == [0, 1]
