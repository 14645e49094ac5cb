"""What an idea names: by words that assert, and by no qualifier of an instruction."""

import pytest

from rag.retrieval.mechanisms import (
    BULK,
    CLUSTERS,
    FORMATS,
    MMA,
    ROLES,
    SHARED_TILE,
    TENSOR_MAPS,
    WGMMA,
    named,
    shown_by,
)

LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    "idea", [LOAD, f"{LOAD} [to], [from]", "fence.mbarrier_init.release.cluster, then mbarrier.init"]
)
def test_a_qualifier_of_an_instruction_is_no_cluster(idea: str) -> None:
    assert named(idea) == (BULK,)
    assert CLUSTERS not in shown_by(f'asm volatile("{idea};");')


@pytest.mark.parametrize(
    "idea",
    [
        "A cluster of two",
        "clusters hold a row",
        "__cluster_dims__(8,1,1)",
        "barrier.cluster.arrive, then wait",
        "cluster.sync() between",
        "mapa to the peer",
        "distributed shared memory",
    ],
)
def test_a_cluster_is_named_by_words_attributes_and_its_own_instructions(idea: str) -> None:
    assert named(idea) == (CLUSTERS,)
    assert named(f"wgmma in a ring. {idea}. {LOAD}") == (WGMMA, BULK, CLUSTERS)


@pytest.mark.parametrize(
    "denied",
    [
        "No cluster.",
        "without a cluster",
        "instead of clusters",
        "no cp.async.bulk.tensor",
        "rather than the mma.sync form",
        "never an mma.sync",
    ],
)
def test_what_an_idea_does_without_is_not_named(denied: str) -> None:
    assert named(f"wgmma from swizzled tiles, {denied}") == (WGMMA,)
    assert named(f"{denied} wgmma from swizzled tiles") == (WGMMA,)


def test_what_is_asserted_beside_a_denial_stays_named() -> None:
    assert named("cp.async.bulk, no tensor map, and mma.sync without wgmma") == (MMA, BULK)
    assert TENSOR_MAPS in named("not cp.async but a tensor map")


def test_a_barrier_alone_asks_for_its_page_only_where_nothing_else_is_named() -> None:
    ring = "mbarrier.arrive on full[slot], producer warps and consumer warps"
    assert named("An mbarrier for each slot") == (BULK,)
    assert named(f"ldmatrix and mma.sync, {ring}") == (MMA, ROLES)


def test_pages_come_before_whole_kernels_unless_a_kernel_says_it_better() -> None:
    assert named("Multicast the tile to a cluster, wgmma")[:2] == (WGMMA, CLUSTERS)
    assert named("Multicast the tile to a cluster")[-1] == SHARED_TILE
    assert named("TMA multicast of the tile")[0] == SHARED_TILE
    assert named("wgmma, row sums by shuffles")[0] == FORMATS
    assert FORMATS not in named("wgmma in e4m3")
    assert len(set(named("mbarrier, bulk copy, mbarrier"))) == len(named("mbarrier, bulk copy, mbarrier"))
