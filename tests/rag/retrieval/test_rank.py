from rag.retrieval.passage import Card, Query
from rag.retrieval.rank import rank

CARDS = {
    "p": Card("p", "P", "p.md", (), (), ("norm",), ("dram-bw",)),
    "q": Card("q", "Q", "q.md", (), (), ("gemm",), ("tensor",)),
}
PAGE_OF = {"p1": "p", "p2": "p", "q1": "q"}


def test_channels_count_by_weight_and_a_page_comes_once_with_its_best_chunk() -> None:
    channels = {"bm25": [("p1", 0.9), ("p2", 0.8), ("q1", 0.7)], "dense": [("q1", 0.9), ("p2", 0.8), ("p1", 0.7)]}
    found = rank([("p", 0.5), ("q", 0.4)], channels, PAGE_OF, CARDS, Query("x"))
    assert [(r.chunk, r.page) for r in found] == [("p1", "p"), ("q1", "q")]
    places = {"sheet": 0.5, "bm25": 0.9, "dense": 0.8}
    assert found[0].scores == places | {"rrf": 0.211039, "tags": 0.0, "score": 0.211039}


def test_matching_tags_lift_a_page_past_a_better_placed_one() -> None:
    channels = {"bm25": [("q1", 9.0), ("p1", 8.9)]}
    assert [r.page for r in rank([], channels, PAGE_OF, CARDS, Query("x"))] == ["q", "p"]
    lifted = rank([], channels, PAGE_OF, CARDS, Query("x", bottleneck="dram-bw", families=("norm", "softmax")))
    assert [(r.page, r.scores["tags"]) for r in lifted] == [("p", 0.04), ("q", 0.0)]


def test_the_limit_holds_and_where_nothing_is_found_the_list_is_empty() -> None:
    channels = {"dense": [("q1", 1.0)], "bm25": [("p1", 1.0)]}
    assert [r.page for r in rank([], channels, PAGE_OF, CARDS, Query("x"))] == ["p", "q"]
    assert [r.page for r in rank([], channels, PAGE_OF, CARDS, Query("x", limit=1))] == ["p"]
    assert rank([], {"bm25": [], "dense": []}, PAGE_OF, CARDS, Query("x")) == []


def test_a_page_found_only_as_a_whole_has_no_chunk() -> None:
    assert [(r.page, r.chunk) for r in rank([("p", 1.0)], {}, PAGE_OF, CARDS, Query("x"))] == [("p", None)]
