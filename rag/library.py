"""The library: open it, ask it. It always says which mode answers and why."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Literal

from rag import ingest
from rag.dense import DenseIndex
from rag.embed import Embedder, packaged_model
from rag.errors import LibraryError
from rag.lexical import LexicalIndex, words
from rag.page import BOTTLENECKS, FAMILIES, serves_arch, serves_language
from rag.passage import Answer, Mode, Passage, Query
from rag.rank import DEPTH, Ranked, rank

_log = logging.getLogger(__name__)


class Library:
    """An opened library. Safe to ask from several threads; questions are answered one at a time."""

    def __init__(
        self, index: LexicalIndex, dense: tuple[Embedder, DenseIndex] | None, reason: str, must: bool = False
    ) -> None:
        self._index = index
        self._dense = dense
        self._must = must
        self._lock = threading.Lock()
        self.mode_reason = reason

    @classmethod
    def open(
        cls,
        cache_dir: Path | None = None,
        mode: Literal["auto", "lexical", "hybrid"] = "auto",
        progress: ingest.Progress | None = None,
        corpus: Path = ingest.CORPUS,
    ) -> Library:
        """Open the library of `corpus`, building in `cache_dir` what is missing or broken.

        `auto` is hybrid where the model and its packages are installed and work, else lexical; `mode_reason` says why.
        Raises LibraryError for a bad corpus or cache directory, and where `hybrid` is demanded and impossible.
        """
        if mode not in ("auto", "lexical", "hybrid"):
            raise LibraryError(f"unknown retrieval mode {mode!r}: auto, lexical or hybrid")
        tell = progress or _log.info
        cache = cache_dir or ingest.default_cache()
        index = ingest.open_lexical(cache, ingest.read(corpus), tell)
        if mode == "lexical":
            return cls(index, None, "lexical retrieval was asked for")
        try:
            dense, reason = _open_dense(cache, index, tell, corpus)
        except LibraryError as error:
            dense, reason = None, str(error)
        if mode == "hybrid" and dense is None:
            index.close()
            raise LibraryError(f"hybrid retrieval is not possible: {reason}")
        return cls(index, dense, reason, must=mode == "hybrid")

    @property
    def mode(self) -> Mode:
        """What answers now."""
        return "lexical" if self._dense is None else "hybrid"

    @property
    def pages(self) -> int:
        """How many pages the library holds."""
        return len(self._index.cards)

    @property
    def chunks(self) -> int:
        """How many chunks the pages are cut into."""
        return self._index.size

    def search(self, query: Query) -> Answer:
        """The best passages for `query`, one a page. Empty only where no page that the filters admit shares a word.

        Raises LibraryError for an unknown arch, language, family or bottleneck, for a query with nothing to search
        for, and for a broken index. In mode `auto` a dead embedding process turns the library lexical, which the
        answer's mode and `mode_reason` say; in mode `hybrid` it raises.
        """
        _check(query)
        text = query.text
        if not any(words(text)):
            text = " ".join((*query.families, query.bottleneck or ""))
        if not any(words(text)):
            raise LibraryError(f"the query {query.text!r} holds no word to search for")
        with self._lock:
            return self._answer(query, text)

    def _answer(self, query: Query, text: str) -> Answer:
        cards = self._index.cards
        allowed = [
            card.id
            for card in cards.values()
            if serves_arch(card.archs, query.arch) and serves_language(card.languages, query.language)
        ]
        channels = {"bm25": self._index.search(text, allowed, DEPTH)}
        dense = self._nearest(text, allowed)
        if dense is not None:
            channels["dense"] = dense
        page_of = self._index.pages_of({name for hits in channels.values() for name, _ in hits})
        ranked = rank(channels, page_of, cards, query)
        return Answer(self.mode, tuple(self._passage(one) for one in ranked))

    def _nearest(self, text: str, allowed: list[str]) -> list[tuple[str, float]] | None:
        if self._dense is None:
            return None
        embedder, vectors = self._dense
        try:
            return vectors.search(embedder.embed([text])[0], self._index.ids(allowed), DEPTH)
        except LibraryError as error:
            if self._must:
                raise
            _log.warning("retrieval goes on without vectors: %s", error)
            self._close_dense()
            self.mode_reason = f"lexical since the vectors failed: {error}"
            return None

    def _passage(self, ranked: Ranked) -> Passage:
        card = self._index.cards[ranked.page]
        heading, text = self._index.chunk(ranked.chunk)
        return Passage(ranked.chunk, card.id, card.title, heading, text, card.path, card.archs, ranked.scores)

    def _close_dense(self) -> None:
        if self._dense is not None:
            for part in self._dense:
                part.close()
        self._dense = None

    def close(self) -> None:
        """End the embedding process and close the indexes. Safe to call twice."""
        with self._lock:
            self._close_dense()
            self._index.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _open_dense(
    cache: Path, index: LexicalIndex, tell: ingest.Progress, corpus: Path
) -> tuple[tuple[Embedder, DenseIndex] | None, str]:
    model = packaged_model()
    if isinstance(model, str):
        return None, model
    embedder = Embedder(model)
    try:
        vectors = ingest.open_dense(cache, index, model, embedder, tell, corpus)
        return (embedder, vectors), f"the model {model.id} is installed"
    except BaseException:  # also for Ctrl-C: the child must not outlive the failed opening
        embedder.close()
        raise


def _check(query: Query) -> None:
    serves_arch((), query.arch)
    serves_language((), query.language)
    for family in query.families:
        if family not in FAMILIES:
            raise LibraryError(f"unknown family {family!r}: one of {', '.join(sorted(FAMILIES))}")
    if query.bottleneck is not None and query.bottleneck not in BOTTLENECKS:
        raise LibraryError(f"unknown bottleneck {query.bottleneck!r}: one of {', '.join(sorted(BOTTLENECKS))}")
