"""Which experience says most for a question: found by its words and, where there is a model, by vectors too."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag.embeddings.config import EmbeddingConfig, from_environment
from rag.embeddings.model import Embeds
from rag.experience.ledger import Experience
from rag.index import build, chroma, dense
from rag.index.terms import asked, spelt_out, words
from rag.retrieval.passage import Mode
from rag.retrieval.rank import RRF_K, Hits

EMBEDDED = 256
"""Experiences that a question embeds at most, the newest: half a minute on one core. The others are found by words."""

K1, B, OWN = 1.2, 0.75, 3.0
"""BM25's usual constants, and how often a question's own term counts for each that it only means."""


@dataclass(frozen=True, slots=True)
class Recollection:
    """Experiences, the most telling first, with the mode that ranked them and why it was that one."""

    mode: Mode
    reason: str
    experiences: tuple[Experience, ...]


def told(one: Experience) -> str:
    """An experience as a text: what the model reads, and where words are looked for."""
    about = f"{' '.join(one.families)}; {' '.join(one.operators)}; {one.bottleneck}; {one.target} {one.arch}"
    return f"{one.title}. {one.transformation}\n{about}\n{one.verdict.replace('_', ' ')}: {one.why}"


def by_words(question: str, texts: Mapping[str, str]) -> list[tuple[str, float]]:
    """The ids of the texts that share a word with the question with their BM25 score, best first, ties by id."""
    own, meant = asked(question)
    weights = dict.fromkeys(meant, 1.0) | dict.fromkeys(own, OWN)
    counts = {name: Counter(words(text)) for name, text in texts.items()}
    lengths = {name: count.total() for name, count in counts.items()}
    usual = sum(lengths.values()) / max(1, len(lengths)) or 1.0
    rarity = {}
    for term in weights:
        n = sum(term in count for count in counts.values())
        rarity[term] = math.log(1 + (len(counts) - n + 0.5) / (n + 0.5))

    def score(name: str) -> float:
        count, length = counts[name], K1 * (1 - B + B * lengths[name] / usual)
        held = ((term, weight, count[term]) for term, weight in weights.items() if term in count)
        return sum(weight * rarity[term] * n * (K1 + 1) / (n + length) for term, weight, n in held)

    hits = [(name, score(name)) for name in texts]
    return sorted((hit for hit in hits if hit[1] > 0), key=lambda hit: (-hit[1], hit[0]))


def by_vectors(
    question: str, known: Sequence[Experience], embedder: Embeds, cache: Path, choice: EmbeddingConfig
) -> Hits:
    """The newest of the experiences by likeness of meaning, best first. Raises LibraryError."""
    texts = {one.id: told(one) for one in _newest(known)[:EMBEDDED]}
    (vector,) = embedder.embed([spelt_out(question)], asked=True)
    with build.writer(cache / "experience", _quiet):
        vectors = _vectors(texts, embedder, cache)
        return dense.GrowingIndex(place(cache, embedder.model.id, choice)).nearest(vector, vectors, texts)


def learn(known: Sequence[Experience], embedder: Embeds, cache: Path, choice: EmbeddingConfig) -> None:
    """Put experiences into their collection. Raises LibraryError."""
    texts = {one.id: told(one) for one in _newest(known)[:EMBEDDED]}
    with build.writer(cache / "experience", _quiet):
        vectors = _vectors(texts, embedder, cache)
        dense.GrowingIndex(place(cache, embedder.model.id, choice)).put(vectors, texts)


def forget(ids: Sequence[str], cache: Path | None = None) -> None:
    """Take experiences out of every collection, whichever model made it. Raises LibraryError.

    Embedded collections go as a whole, since Chroma's files keep what was deleted; what is still known is put again.
    """
    if not ids:
        return
    cache, choice = cache or build.default_cache(), from_environment()
    if (cache / "experience").exists():
        with build.writer(cache / "experience", _quiet):
            for path in (cache / "experience").glob("chroma-*"):
                shutil.rmtree(path)
    if choice.chroma_url is not None:
        dense.drop(place(cache, "", choice), ids)


def place(cache: Path, model: str, choice: EmbeddingConfig) -> chroma.VectorStorePath:
    """The collection of experience as `model` embeds it: a directory of its own, or one on the team's server."""
    name = chroma.collection_name(f"experience-{model}")
    return chroma.VectorStorePath(cache / "experience" / f"chroma-{name}", name, choice.chroma_url, choice.chroma_token)


def ranked(question: str, known: Sequence[Experience], near: Hits) -> tuple[Experience, ...]:
    """All of the experiences, those first that words and `near` find, by reciprocal ranks; ties fall to the newest."""
    found = {one.id: 0.0 for one in known}
    for hits in (by_words(question, {one.id: told(one) for one in known}), near):
        for rank, (name, _) in enumerate(hits, 1):
            found[name] += 1 / (RRF_K + rank)
    return tuple(sorted(_newest(known), key=lambda one: -found[one.id]))


def _newest(known: Sequence[Experience]) -> list[Experience]:
    return sorted(known, key=lambda one: (one.date, one.id), reverse=True)


def _vectors(texts: Mapping[str, str], embedder: Embeds, cache: Path) -> dict[str, bytes]:
    made = build.vectors_of(cache, embedder, {dense.key(text): text for text in texts.values()}, _quiet, None)
    return {name: made[dense.key(text)] for name, text in texts.items()}


def _quiet(_: str) -> None:
    pass
