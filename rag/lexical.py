"""The lexical index: one SQLite file that holds pages, chunks and an FTS5 table. It is the truth and always there."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag.chunk import Chunk
from rag.errors import LibraryError
from rag.page import Page

SCHEMA = 2
"""Raise it whenever the tables or the tokenizer change: older indexes are then rebuilt."""

WEIGHTS = (2.0, 1.5, 1.0)
"""BM25 weights of the columns name (title, heading), tags (id, signals), body."""

_TOKEN = re.compile(r"\w+(?:\.[A-Za-z_]\w*)*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_STOP_WORDS = (
    "a about an and any are as at be been but by can do does for from had has have how i if in into is it its me my no "
    "not of on one or our out so than that the their them then there these they this to too up use used using was we "
    "were what when where which while who why will with would you your"
)
_STOP = frozenset(_STOP_WORDS.split())
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE pages (id TEXT PRIMARY KEY, title TEXT, path TEXT, archs TEXT, languages TEXT, families TEXT,
                    bottlenecks TEXT);
CREATE TABLE chunks (n INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, page TEXT NOT NULL, heading TEXT, text TEXT,
                     embedded TEXT);
CREATE VIRTUAL TABLE words USING fts5 (name, tags, body, content='', tokenize="unicode61 tokenchars '_'");
"""


@dataclass(frozen=True, slots=True)
class Card:
    """What ranking and showing need to know of a page."""

    id: str
    title: str
    path: str
    archs: tuple[str, ...]
    languages: tuple[str, ...]
    families: tuple[str, ...]
    bottlenecks: tuple[str, ...]


def words(text: str) -> Iterator[str]:
    """The index terms of prose or code: identifiers whole, and their snake and camel parts, stemmed; no stop words."""
    for match in _TOKEN.finditer(text):
        token = match[0]
        whole = token.strip("_").replace(".", "_").lower()
        parts = [stem(part.lower()) for part in _PART.findall(token)]
        if len(parts) > 1:
            yield whole
        yield from (part for part in parts if part not in _STOP and (len(part) > 1 or part.isdigit()))


def stem(word: str) -> str:
    """A light English stem: fused, fuses and fusing meet; reduction and reduce meet. Never longer than the word."""
    for suffix, rest in (("ations", ""), ("ation", ""), ("ctions", "c"), ("ction", "c"), ("ings", ""), ("ing", "")):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return _undouble(word.removesuffix(suffix) + rest)
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    if word.endswith("ed") and len(word) > 4:
        word = _undouble(word[:-2])
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _undouble(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] in "bdgmnprt" else word


def write(path: Path, pages: Sequence[Page], chunks: Iterable[Chunk]) -> int:
    """Make the index at `path`, which must not exist. Returns the number of chunks."""
    by_id = {page.id: page for page in pages}
    base = sqlite3.connect(path, isolation_level=None)
    try:
        base.execute("PRAGMA journal_mode = OFF")
        base.executescript(_TABLES)
        base.execute("BEGIN")
        base.executemany("INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, ?)", [_page_row(page) for page in pages])
        n = 0
        for n, chunk in enumerate(chunks, 1):
            row = (n, chunk.id, chunk.page, chunk.heading, chunk.text, chunk.embedded)
            base.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)", row)
            terms = _terms(by_id[chunk.page], chunk)
            base.execute("INSERT INTO words (rowid, name, tags, body) VALUES (?, ?, ?, ?)", (n, *terms))
        base.executemany("INSERT INTO meta VALUES (?, ?)", [("schema", str(SCHEMA)), ("chunks", str(n))])
        base.execute("COMMIT")
        return n
    finally:
        base.close()


def _page_row(page: Page) -> tuple[str, ...]:
    lists = (page.archs, page.languages, page.families, page.bottlenecks)
    return (page.id, page.title, page.path, *(json.dumps(items) for items in lists))


def _terms(page: Page, chunk: Chunk) -> tuple[str, str, str]:
    # Families and bottlenecks are left to the lift: on every chunk of half the pages, they would take all weight from
    # words such as "softmax", since BM25 counts a term that is everywhere as nothing.
    tags = " ".join((page.id, *page.signals))
    texts = (f"{page.title} {chunk.heading}", tags, chunk.words)
    name, tags, body = (" ".join(words(text)) for text in texts)
    return name, tags, body


class LexicalIndex:
    """An index opened for reading. Raises LibraryError, with the file's name, wherever SQLite finds it broken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise LibraryError(f"the index {path} cannot be opened ({error})") from error
        try:
            self._check()
            rows = self._rows("SELECT id, title, path, archs, languages, families, bottlenecks FROM pages ORDER BY id")
            self.cards = {row[0]: Card(*row[:3], *(tuple(json.loads(items)) for items in row[3:])) for row in rows}
        except LibraryError:
            self._base.close()
            raise

    def _check(self) -> None:
        if self._rows("PRAGMA quick_check(1)") != [("ok",)]:
            raise LibraryError(f"the index {self.path} is broken (SQLite's quick check failed)")
        meta = dict(self._rows("SELECT key, value FROM meta"))
        self.size: int = self._rows("SELECT count(*) FROM chunks")[0][0]
        if meta != {"schema": str(SCHEMA), "chunks": str(self.size)}:
            raise LibraryError(f"the index {self.path} is incomplete")

    def _rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._base.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise LibraryError(
                f"the index {self.path} is broken ({error}); `python -m rag build` remakes it"
            ) from error

    def search(self, text: str, pages: Iterable[str], limit: int) -> list[tuple[str, float]]:
        """Chunk ids of `pages` with their BM25 score (higher is better), best first, ties by id."""
        terms = list(dict.fromkeys(words(text)))
        if not terms:
            return []
        rows = self._rows(
            "SELECT chunks.id, bm25(words, ?, ?, ?) AS cost FROM words JOIN chunks ON chunks.n = words.rowid "
            "WHERE words MATCH ? AND chunks.page IN (SELECT value FROM json_each(?)) ORDER BY cost, chunks.id LIMIT ?",
            (*WEIGHTS, " OR ".join(f'"{term}"' for term in terms), json.dumps(list(pages)), limit),
        )
        return [(str(row[0]), -float(row[1])) for row in rows]

    def ids(self, pages: Iterable[str]) -> list[str]:
        """The ids of all chunks of `pages`, in order."""
        sql = "SELECT id FROM chunks WHERE page IN (SELECT value FROM json_each(?)) ORDER BY id"
        return [str(row[0]) for row in self._rows(sql, (json.dumps(list(pages)),))]

    def pages_of(self, chunks: Iterable[str]) -> dict[str, str]:
        """The page of each chunk id."""
        sql = "SELECT id, page FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._rows(sql, (json.dumps(list(chunks)),)))

    def chunk(self, name: str) -> tuple[str, str]:
        """(heading, text) of a chunk."""
        heading, text = self._rows("SELECT heading, text FROM chunks WHERE id = ?", (name,))[0]
        return str(heading), str(text)

    def embedded(self) -> dict[str, str]:
        """What the model reads of every chunk, by chunk id."""
        return {str(row[0]): str(row[1]) for row in self._rows("SELECT id, embedded FROM chunks ORDER BY id")}

    def close(self) -> None:
        self._base.close()
