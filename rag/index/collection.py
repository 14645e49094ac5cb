"""One index with its vectors: the corpus is one shelf, the user's own documents another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag.documents.page import serves_arch, serves_language
from rag.index.dense import DenseIndex
from rag.index.lexical import LexicalIndex
from rag.retrieval.passage import Card, Query
from rag.retrieval.rank import DEPTH, Hits

CHUNKS = 3 * DEPTH
"""Chunks asked for, so that they are of enough pages."""


@dataclass(slots=True)
class Collection:
    """A lexical index, and the vector index beside it where there is one."""

    index: LexicalIndex
    dense: DenseIndex | None = None

    def admitted(self, query: Query) -> list[Card]:
        """The pages that the question's filters admit. Raises LibraryError for an unknown arch or language."""
        return [
            card
            for card in self.index.cards.values()
            if card.kind in query.kinds
            and card.id not in query.without
            and serves_arch(card.archs, query.arch)
            and serves_language(card.languages, query.language)
        ]

    def hits(self, text: str, vector: bytes | None, pages: Sequence[str]) -> tuple[Hits, dict[str, Hits]]:
        """What answers among `pages`: pages as a whole, and chunks by channel. Raises LibraryError."""
        chunks: dict[str, Hits] = {"bm25": self.index.search(text, pages, CHUNKS)}
        if self.dense is not None and vector is not None:
            chunks["dense"] = self.dense.search(vector, self.index.ids(pages), CHUNKS)
        return self.index.search_pages(text, pages, DEPTH), chunks

    def close(self) -> None:
        """Close both indexes. Safe to call twice."""
        if self.dense is not None:
            self.dense.close()
        self.index.close()
