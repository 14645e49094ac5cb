"""Ranking, as pure functions: every channel ranks pages, the ranks are fused, matching tags lift, a page comes once."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from rag.retrieval.passage import Card, Passage, Query

DEPTH = 50
"""Pages taken from a channel."""

RRF_K = 20
"""Reciprocal rank fusion's constant: small, because the lists are short."""

WEIGHT = {"sheet": 1.0, "bm25": 2.0, "dense": 1.5}
"""A page as a whole and its best chunk are both found by words; together they count twice what the vectors do."""

BOTTLENECK_LIFT = 0.02
FAMILY_LIFT = 0.02
"""Added for a matching tag. For comparison: places 1 and 2 of all channels lie .01 apart, 1 and 10 lie .06 apart."""

Hits = Sequence[tuple[str, float]]


@dataclass(slots=True)
class Ranked:
    """A page with its best chunk (None where only the page as a whole was found), its scores by channel, `score`."""

    page: str
    chunk: str | None
    scores: dict[str, float] = field(default_factory=dict)


def rank(
    sheets: Hits,
    channels: Mapping[str, Hits],
    page_of: Mapping[str, str],
    cards: Mapping[str, Card],
    query: Query,
) -> list[Ranked]:
    """The pages, best first, at most `query.limit`; ties fall by id. `sheets` ranks pages, `channels` rank chunks."""
    scores: dict[str, dict[str, float]] = {}
    fused: dict[str, float] = {}
    chunks: dict[str, float] = {}
    for channel, hits in [("sheet", sheets), *channels.items()]:
        places: dict[str, int] = {}
        for place, (name, score) in enumerate(hits, 1):
            page = name if channel == "sheet" else page_of[name]
            if page not in places:
                places[page] = len(places) + 1
                scores.setdefault(page, {})[channel] = round(score, 4)
                fused[page] = fused.get(page, 0.0) + WEIGHT[channel] / (RRF_K + places[page])
            if channel != "sheet":
                chunks[name] = chunks.get(name, 0.0) + WEIGHT[channel] / (RRF_K + place)
    best: dict[str, str] = {}
    for name in sorted(chunks, key=lambda name: (-chunks[name], name)):
        best.setdefault(page_of[name], name)
    found = [Ranked(page, best.get(page), _summed(scores[page], fused[page], cards[page], query)) for page in fused]
    return sorted(found, key=lambda one: (-one.scores["score"], one.page))[: query.limit]


SLOT_K = 6
"""The constant for rankings of several questions: smaller still, so that what one of them clearly means comes first."""


def fused(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """The passages of several questions, a page once, by the sum of 1 / (SLOT_K + place); ties fall by page."""
    sums: dict[str, float] = {}
    first: dict[str, tuple[int, Passage]] = {}
    for ranking in rankings:
        for place, passage in enumerate(ranking, 1):
            sums[passage.page] = sums.get(passage.page, 0.0) + 1.0 / (SLOT_K + place)
            if passage.page not in first or place < first[passage.page][0]:
                first[passage.page] = place, passage
    return [first[page][1] for page in sorted(sums, key=lambda page: (-sums[page], page))]


def freshest(ranked: Sequence[Passage], tried: Container[str], served: Container[str]) -> list[Passage]:
    """What was not tried, those first that nobody was given; all of it where everything was tried."""
    left = [passage for passage in ranked if passage.page not in tried] or list(ranked)
    return sorted(left, key=lambda passage: passage.page in served)


def _summed(scores: dict[str, float], fused: float, card: Card, query: Query) -> dict[str, float]:
    lift = BOTTLENECK_LIFT if query.bottleneck in card.bottlenecks else 0.0
    lift += FAMILY_LIFT if set(query.families) & set(card.families) else 0.0
    return scores | {"rrf": round(fused, 6), "tags": lift, "score": round(fused + lift, 6)}
