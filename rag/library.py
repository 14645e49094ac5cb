"""The library: open it, ask it. It always says which mode answers and why."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rag.corpus_path import CORPUS
from rag.documents.page import BOTTLENECKS, FAMILIES, serves_arch, serves_language
from rag.embeddings import model
from rag.embeddings.config import EmbeddingConfig, from_environment
from rag.embeddings.model import Embeds
from rag.errors import LibraryError
from rag.experience import ranking
from rag.experience.ledger import Experience
from rag.experience.ranking import Recollection
from rag.index import build, chroma, dense, lexical, user_documents
from rag.index.collection import Collection
from rag.index.terms import spelt_out, words
from rag.retrieval.passage import KINDS, Answer, Card, Mode, Passage, Query, prose, within
from rag.retrieval.plan import Situation, plan
from rag.retrieval.rank import DEPTH, Hits, Ranked, freshest, fused, rank

_log = logging.getLogger(__name__)

REMEMBERED = 1000
"""Questions whose vectors are kept: the briefs of a round ask much the same."""

BUDGET = {"ideas": 5_500, "a parent's ideas": 2_800, "code": 12_000, "errors": 3_000}
"""Characters of the passages for one brief, by what it is for: code gets two or three pages whole."""


class Library:
    """An opened library. Safe to ask from several threads; questions are answered one at a time."""

    def __init__(
        self,
        cache: Path,
        shelves: list[Collection],
        embedder: Embeds | None,
        reason: str,
        choice: EmbeddingConfig,
        must: bool,
    ) -> None:
        self._cache = cache
        self._shelves = shelves
        self._embedder = embedder
        self._choice = choice
        self._must = must
        self._lock = threading.Lock()
        self._asked: dict[str, bytes] = {}
        self._likened: dict[str, bytes] = {}
        self.mode_reason = reason

    @classmethod
    def open(
        cls,
        cache_dir: Path | None = None,
        mode: Literal["auto", "lexical", "hybrid"] = "auto",
        progress: build.Progress | None = None,
        corpus: Path = CORPUS,
        choice: EmbeddingConfig | None = None,
    ) -> Library:
        """Open the library of `corpus` and of the user's own documents, building in `cache_dir` what is missing.

        `auto` is hybrid where a model and its packages are there and work, else lexical; `mode_reason` says why.
        `choice` None is what the environment says of models and stores.
        Raises LibraryError for a bad corpus or cache directory, and where `hybrid` is demanded and impossible.
        """
        if mode not in ("auto", "lexical", "hybrid"):
            raise LibraryError(f"unknown retrieval mode {mode!r}: auto, lexical or hybrid")
        tell = progress or _log.info
        cache = cache_dir or build.default_cache()
        shelves = _open_shelves(cache, corpus, tell)
        if mode == "lexical":
            return cls(cache, shelves, None, "lexical retrieval was asked for", EmbeddingConfig(), must=False)
        embedder: Embeds | None = None
        try:
            choice = choice or from_environment()
            embedder, reason = _open_dense(cache, shelves, tell, corpus, choice)
        except LibraryError as error:
            reason = str(error)
        if mode == "hybrid" and embedder is None:
            for one in shelves:
                one.close()
            raise LibraryError(f"hybrid retrieval is not possible: {reason}")
        return cls(cache, shelves, embedder, reason, choice or EmbeddingConfig(), must=mode == "hybrid")

    @property
    def mode(self) -> Mode:
        """What answers now."""
        return "lexical" if self._embedder is None else "hybrid"

    @property
    def pages(self) -> int:
        """How many pages the library holds."""
        return sum(len(shelf.index.cards) for shelf in self._shelves)

    @property
    def chunks(self) -> int:
        """How many chunks the pages are cut into."""
        return sum(shelf.index.size for shelf in self._shelves)

    def search(self, query: Query) -> Answer:
        """The best passages for `query`, one a page. Empty only where no page that the filters admit shares a word.

        Raises LibraryError for an unknown arch, language, family, bottleneck or kind, for a query with nothing to
        search for, and for a broken index. In mode `auto` a dead embedding process turns the library lexical, which
        the answer's mode and `mode_reason` say; in mode `hybrid` it raises.
        """
        _check(query)
        text = query.text
        if not any(words(text)):
            text = " ".join((*query.families, query.bottleneck or ""))
        if not any(words(text)):
            raise LibraryError(f"the query {query.text!r} holds no word to search for")
        with self._lock:
            self._take_up_own()
            passages = self._ranked(query, text)
            return Answer(self.mode, passages)

    def consult(self, situation: Situation, budget: int | None = None) -> Answer:
        """The passages for a kernel under work, by the slots of its plan, no page twice, in `budget` characters, by
        default what BUDGET has for it.

        Each passage says for which slot it was found. Raises LibraryError as `search` does.
        """
        titles = [title for title in situation.tried if any(words(title))]
        about = [self.search(Query(title, situation.arch, situation.language, limit=1)) for title in titles]
        tried = {passage.page for answer in about for passage in answer.passages}
        served = {page for shelf in self._shelves for page in shelf.index.pages_of(situation.served).values()}
        taken: dict[str, Passage] = {}
        for slot in plan(situation):
            asked = [query for query in slot.queries if any(words(query.text)) or query.families or query.bottleneck]
            every = fused([self.search(query).passages for query in asked])
            every = [passage for passage in every if not slot.families or slot.families & self._families(passage.page)]
            if slot.whole:
                every = [passage for passage in every if passage.kind != "kernel" or self._kept(passage.page)]
            ranked = [passage for passage in every if passage.page not in taken]
            if slot.fresh:
                ranked = freshest(ranked, tried, served)
            skip = slot.skip if len(ranked) > slot.skip else 0
            count = slot.count
            if slot.up_to is not None:
                count = max(0, slot.up_to - sum(passage.kind == "page" for passage in taken.values()))
            for passage in ranked[skip : skip + count]:
                taken[passage.page] = replace(passage, slot=slot.name)
            if slot.whole and every:
                best = every[skip if len(every) > skip else 0].page
                taken |= {best: self._whole(taken[best], slot.prose)} if best in taken else {}
        if budget is None:
            budget = _budget(situation)
        return Answer(self.mode, within(tuple(taken.values()), budget))

    def passages(self, names: Iterable[str]) -> tuple[Passage, ...]:
        """The passages of these ids as the library has them now; those of pages that have changed since are left out.

        Raises LibraryError for a broken index.
        """
        wanted = tuple(names)
        with self._lock:
            return tuple(
                _passage(Ranked(page, name, {}), shelf)
                for shelf in self._shelves
                for name, page in shelf.index.pages_of(wanted).items()
            )

    def _families(self, page: str) -> set[str]:
        return {
            name for shelf in self._shelves if page in shelf.index.cards for name in shelf.index.cards[page].families
        }

    def _kept(self, page: str) -> str:
        """The text of a page that is short enough to be kept as it is, empty of a longer one."""
        texts = (shelf.index.whole(page) for shelf in self._shelves if page in shelf.index.cards)
        return next(filter(None, texts), "")

    def _whole(self, passage: Passage, without_code: bool) -> Passage:
        """The page that a passage is of, where it is short enough to be kept as it is."""
        if not (text := self._kept(passage.page)):
            return passage
        return replace(passage, heading="", text=prose(text) if without_code else text)

    def _take_up_own(self) -> None:
        """Go over to the generation of the user's documents that serves now: `add` may have run in the meantime."""
        try:
            now = user_documents.served(self._cache)
            if now in [shelf.index.path.parent for shelf in self._shelves[1:]] or (
                now is None and not self._shelves[1:]
            ):
                return
            taken = [] if now is None else [Collection(lexical.LexicalIndex(now / "index.sqlite"))]
        except LibraryError as error:
            _log.warning("your own documents are answered from what was open: %s", error)
            return
        for shelf in self._shelves[1:]:
            shelf.close()
        self._shelves[1:] = taken
        if self._embedder is not None:
            self.mode_reason = _own_dense(taken, self._embedder.model.id, self._choice)

    def recall(self, question: str, known: Sequence[Experience]) -> Recollection:
        """All of `known`, what says most for the question first; by words alone where vectors cannot be had.

        Experience has a collection of its own: it is in no answer to `search` or `consult`.
        """
        with self._lock:
            near: Hits = []
            mode, reason = self.mode, self.mode_reason
            if known and self._embedder is not None:
                try:
                    near = ranking.by_vectors(question, known, self._embedder, self._cache, self._choice)
                except LibraryError as error:
                    mode, reason = "lexical", str(error)
            return Recollection(mode, reason, ranking.ranked(question, known, near))

    def learn(self, known: Sequence[Experience]) -> None:
        """Put experiences into their collection, where there are vectors; else a later `recall` does.

        Raises LibraryError.
        """
        with self._lock:
            if known and self._embedder is not None:
                ranking.learn(known, self._embedder, self._cache, self._choice)

    def likeness(self, text: str, others: Sequence[str]) -> list[float]:
        """How like a text each of the others is in meaning: the cosine of their vectors; nothing without vectors.

        Raises LibraryError as `search` does where the model is lost.
        """
        with self._lock:
            wanted = [one for one in dict.fromkeys((text, *others)) if one not in self._likened]
            if self._embedder is None or not others:
                return []
            try:
                self._likened |= zip(wanted, self._embedder.embed(wanted) if wanted else (), strict=True)
            except LibraryError as error:
                self._lose_vectors(error)
                return []
            found = dense.cosines(self._likened[text], [self._likened[one] for one in others])
            if len(self._likened) >= REMEMBERED:
                self._likened.clear()
            return found

    def _ranked(self, query: Query, text: str) -> tuple[Passage, ...]:
        vector = self._vector(text)
        sheets: list[tuple[str, float]] = []
        channels: dict[str, list[tuple[str, float]]] = {}
        cards: dict[str, Card] = {}
        page_of: dict[str, str] = {}
        shelf_of: dict[str, Collection] = {}
        for shelf in self._shelves:
            admitted = {card.id: card for card in shelf.admitted(query)}
            whole, chunks = self._hits(shelf, text, vector, list(admitted))
            sheets += whole
            for channel, hits in chunks.items():
                channels.setdefault(channel, []).extend(hits)
            page_of |= shelf.index.pages_of({name for hits in chunks.values() for name, _ in hits})
            cards |= admitted
            shelf_of |= dict.fromkeys(admitted, shelf)
        ordered = {channel: _best_first(hits) for channel, hits in channels.items()}
        ranked = rank(_best_first(sheets)[:DEPTH], ordered, page_of, cards, query)
        return tuple(_passage(one, shelf_of[one.page]) for one in ranked)

    def _vector(self, text: str) -> bytes | None:
        if self._embedder is None:
            return None
        if text in self._asked:
            return self._asked[text]
        try:
            vector = self._embedder.embed([spelt_out(text)], asked=True)[0]
        except LibraryError as error:
            self._lose_vectors(error)
            return None
        if len(self._asked) >= REMEMBERED:
            self._asked.clear()
        self._asked[text] = vector
        return vector

    def _hits(
        self, shelf: Collection, text: str, vector: bytes | None, pages: list[str]
    ) -> tuple[Hits, dict[str, Hits]]:
        if not pages:
            return [], {}
        try:
            return shelf.hits(text, vector, pages)
        except LibraryError as error:
            if vector is None or shelf.dense is None:
                raise
            self._lose_vectors(error)
            return shelf.hits(text, None, pages)

    def _lose_vectors(self, error: LibraryError) -> None:
        if self._must:
            raise error
        _log.warning("retrieval goes on without vectors: %s", error)
        self._close_dense()
        self.mode_reason = f"lexical since the vectors failed: {error}"

    def _close_dense(self) -> None:
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None
        for shelf in self._shelves:
            if shelf.dense is not None:
                shelf.dense.close()
                shelf.dense = None

    def close(self) -> None:
        """End the embedding process and close the indexes. Safe to call twice."""
        with self._lock:
            self._close_dense()
            for shelf in self._shelves:
                shelf.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _budget(known: Situation) -> int:
    if known.errors.strip():
        return BUDGET["errors"]
    if known.idea.strip():
        return BUDGET["code"]
    return BUDGET["a parent's ideas" if known.has_kernel else "ideas"]


def _open_shelves(cache: Path, corpus: Path, tell: build.Progress) -> list[Collection]:
    index = build.open_lexical(cache, build.read(corpus), tell)
    try:
        added = build.open_own(cache, tell)
    except LibraryError:
        index.close()
        raise
    return [Collection(index)] if added is None else [Collection(index), Collection(added)]


def _best_first(hits: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))


def _passage(ranked: Ranked, shelf: Collection) -> Passage:
    card = shelf.index.cards[ranked.page]
    name = ranked.chunk or shelf.index.first_chunk(ranked.page)
    heading, text = shelf.index.chunk(name)
    return Passage(name, card.id, card.title, heading, text, card.path, card.archs, ranked.scores, card.kind)


def _open_dense(
    cache: Path, shelves: list[Collection], tell: build.Progress, corpus: Path, choice: EmbeddingConfig
) -> tuple[Embeds | None, str]:
    embedder = model.start(choice)
    if isinstance(embedder, str):
        return None, embedder
    name = embedder.model.id
    try:
        shelves[0].dense = build.open_dense(cache, shelves[0].index, embedder, choice, tell, corpus)
    except BaseException:  # also for Ctrl-C: the child must not outlive the failed opening
        embedder.close()
        raise
    return embedder, _own_dense(shelves[1:], name, choice)


def _own_dense(shelves: list[Collection], model: str, choice: EmbeddingConfig) -> str:
    """Give the user's documents the vectors that `add` made for them, if it did; what embeds, in words."""
    reason = f"the model {model} embeds"
    for shelf in shelves:
        try:
            where = chroma.place(shelf.index.path.parent, model, choice)
            shelf.dense = dense.DenseIndex(where, shelf.index.size)
        except LibraryError as error:
            reason += f"; your own documents are found by their words alone ({error})"
    return reason


def _check(query: Query) -> None:
    serves_arch((), query.arch)
    serves_language((), query.language)
    for family in query.families:
        if family not in FAMILIES:
            raise LibraryError(f"unknown family {family!r}: one of {', '.join(sorted(FAMILIES))}")
    if query.bottleneck is not None and query.bottleneck not in BOTTLENECKS:
        raise LibraryError(f"unknown bottleneck {query.bottleneck!r}: one of {', '.join(sorted(BOTTLENECKS))}")
    for kind in query.kinds:
        if kind not in KINDS:
            raise LibraryError(f"unknown kind {kind!r}: one of {', '.join(KINDS)}")
