"""Ideas that are one in other words, and ideas that only sound alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_agent.knowledge.similarity import ALIKE, ALIKE_OF_ONE_TECHNIQUE, alike, techniques
from kernel_agent.run.types import Idea
from kernel_agent.search.novelty import repeats, text_of


def idea(title: str, transformation: str = "") -> Idea:
    return Idea("i", 1, "p", title, bottleneck="DRAM", transformation=transformation)


SAME = [
    (
        idea("Hold the row in registers", "each thread keeps its 16 values of the row in registers between the passes"),
        idea("Keep row in registers", "every thread holds 32 row values in registers between passes"),
    ),
    (idea("Use float4 loads"), idea("Vectorized 128-bit loads")),
    (
        idea("Vectorized loads", "load x with float4, 16 bytes a thread"),
        idea("128-bit vector loads", "each thread loads 4 elements of x as one float4"),
    ),
    (
        idea("Fuse softmax into one kernel", "one kernel computes max, sum and normalisation"),
        idea("Single fused softmax kernel", "compute the max, the sum and the normalisation in a single kernel"),
    ),
    (idea("Tile 64 x 64 in shared memory"), idea("Tile 128x128 in shared memory")),
    (idea("Split-K with a second kernel"), idea("split k, second kernel")),
]
OTHER = [
    (
        idea("Hold the row in registers", "each thread keeps its values of the row in registers between the passes"),
        idea("Hold the row in shared memory", "each block keeps the values of the row in shared memory between passes"),
    ),
    (
        idea("Vectorized loads of x", "float4 loads"),
        idea("Prefetch the next tile of x", "cp.async into a second buffer"),
    ),
    (
        idea("Online softmax", "one pass keeps a running max and a running sum"),
        idea("Two rows a block", "each block normalises two rows at once so that latency overlaps"),
    ),
    (
        idea("Warp-level reduction", "shuffles replace the shared memory tree"),
        idea("Warp specialisation", "producer warps load tiles by TMA, consumer warps multiply"),
    ),
    (idea("Fuse the bias"), idea("Fuse the residual")),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_in_other_words_is_found(one: Idea, other: Idea) -> None:
    assert repeats(one, [idea("Something else entirely"), other]) == other
    assert repeats(other, [one]) == one


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_only_sounds_alike_is_new(one: Idea, other: Idea) -> None:
    assert repeats(one, [other]) is None and repeats(other, [one]) is None


def test_long_ideas_on_one_problem_are_not_one_for_the_words_that_they_share() -> None:
    task = (
        "Rows of 16384 floats of which the 64 largest are kept in descending order: load eight with AVX2, compare with "
        "a bound, compress those above by a table of permutations, store them to a buffer on the stack, sort its "
        "values and write the softmax of the first. Guard ties and infinities by a plain fallback that selects the "
        "slow way. "
    )
    first = (
        "The bound is the least of the maxima of groups, found while the row is still warm; no guess is needed, and "
        "whoever comes above it belongs to few blocks. "
    )
    second = (
        "Quarters advance together, so that four misses stay open; each has its own pointer and end, and what they "
        "gather is merged before sorting. "
    )
    one, two = idea("Guaranteed bound from maxima", task + first), idea("Four streams", task + second)
    assert ALIKE_OF_ONE_TECHNIQUE < alike(text_of(one), text_of(two)) < ALIKE
    assert techniques(text_of(one)) == techniques(text_of(two))
    assert repeats(one, [two]) is None and repeats(one, [replace(one, id="again")]) is not None


CORE = (
    "Core: 128 x 256 tiles, two consumer warpgroups and one producer warp, a ring of five stages in shared memory "
    "filled by bulk copies that a cluster of two shares by multicast. Each consumer waits on the full barrier, reads "
    "its rows of W, converts them in registers and issues wgmma with A from registers. The empty barrier counts both "
    "blocks of the cluster. The epilogue adds the bias, applies ReLU and stores pairs of floats. "
)


def test_what_ideas_repeat_word_for_word_makes_them_neither_one_nor_two() -> None:
    digits = (
        "Both operands become sixteen-bit fixed point, scaled by their largest value, cut into two eight-bit digits; "
    )
    halves = "The main product is in fp16; what rounding left of either operand goes through e4m3 at twice the rate; "
    one = idea("Fixed point in digits", CORE + digits + "three integer products are exact, only their shift rounds.")
    two = idea("Main product and corrections", CORE + halves + "the corrections come first and are rescaled once.")
    assert alike(text_of(one), text_of(two)) > 0.7, "of their words; in meaning they are all but one as well"
    assert repeats(one, [two], lambda _, others: [0.97 for _ in others]) is None
    again = idea("Main product, then what it left", CORE + halves + "the corrections come first and are rescaled once.")
    assert repeats(again, [two]) == two
    worded = "The main product is of fp16; what its rounding left of both operands takes e4m3 at twice its rate; "
    assert repeats(idea("Corrections apart", CORE + worded + "corrections come first, rescaled once."), [two]) == two


def test_templates_are_told_apart_by_their_genes_alone() -> None:
    gene = Idea("i", 1, "p", "256 threads a block", "", {"threads": 256})
    assert repeats(gene, [gene]) is None and repeats(idea("256 threads a block"), [gene]) is None


def test_techniques_are_known_by_many_names() -> None:
    assert techniques("Double-buffer the tiles in SMEM with cp.async") == {"pipeline", "shared memory", "async copy"}
    assert techniques("") == frozenset()
