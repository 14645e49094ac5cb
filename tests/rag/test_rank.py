from rag.lexical import Card
from rag.passage import Query
from rag.rank import rank

CARDS = {
    "p": Card("p", "P", "p.md", (), (), ("norm",), ("dram-bw",)),
    "q": Card("q", "Q", "q.md", (), (), ("gemm",), ("tensor",)),
}
PAGE_OF = {"p1": "p", "p2": "p", "q1": "q"}


def test_bm25_counts_twice_and_one_chunk_of_a_page_is_kept() -> None:
    channels = {"bm25": [("p1", 9.0), ("p2", 8.0), ("q1", 7.0)], "dense": [("q1", 0.9), ("p2", 0.8), ("p1", 0.7)]}
    found = rank(channels, PAGE_OF, CARDS, Query("x"))
    assert [(r.chunk, r.page) for r in found] == [("p1", "p"), ("q1", "q")]
    assert found[0].scores == {"bm25": 9.0, "dense": 0.7, "rrf": 0.138716, "tags": 0.0, "score": 0.138716}


def test_matching_tags_lift_a_page_past_a_better_placed_one() -> None:
    channels = {"bm25": [("q1", 9.0), ("p1", 8.9)]}
    assert [r.page for r in rank(channels, PAGE_OF, CARDS, Query("x"))] == ["q", "p"]
    lifted = rank(channels, PAGE_OF, CARDS, Query("x", bottleneck="dram-bw", families=("norm", "softmax")))
    assert [(r.page, r.scores["tags"]) for r in lifted] == [("p", 0.05), ("q", 0.0)]


def test_the_limit_holds_and_ties_fall_by_page() -> None:
    channels = {"dense": [("q1", 1.0)], "bm25": [("p1", 1.0)]}
    assert [r.page for r in rank(channels, PAGE_OF, CARDS, Query("x", limit=1))] == ["p"]
    tied = rank({"bm25": [("q1", 1.0)], "dense": [("p1", 1.0)]}, PAGE_OF, CARDS, Query("x", families=("gemm",)))
    assert [r.page for r in tied] == ["q", "p"]
    assert rank({"bm25": [], "dense": []}, PAGE_OF, CARDS, Query("x")) == []
