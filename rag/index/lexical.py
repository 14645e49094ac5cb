"""The lexical index: one SQLite file that holds pages, chunks and an FTS5 table. It is the truth and always there."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from rag.documents.chunk import chunks
from rag.documents.page import Page
from rag.errors import LibraryError
from rag.index.terms import asked, words
from rag.retrieval.passage import Card

SCHEMA = 5
"""Raise it whenever the tables or the tokenizer change: older indexes are then rebuilt."""

WHOLE = 8000
"""Characters up to which a page is kept as it is, beside its chunks."""

SHEET_WEIGHTS = (3.0, 2.0, 1.0)
"""BM25 weights of a whole page's columns: name (id, title, headings), signals, body."""

CHUNK_WEIGHTS = (2.0, 1.0)
"""BM25 weights of a chunk's columns: name (title, heading), body."""

OWN = 3
"""How often a question's own term counts for each time that a term counts which it only means."""

BM25_K1 = 1.2
"""FTS5's own constant: a term's share is at most this plus one times its rarity."""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE pages (n INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, title TEXT, path TEXT, archs TEXT, languages TEXT,
                    families TEXT, bottlenecks TEXT, kind TEXT, body TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE chunks (n INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, page TEXT NOT NULL, heading TEXT, text TEXT,
                     embedded TEXT);
CREATE INDEX chunks_by_page ON chunks (page);
CREATE VIRTUAL TABLE words USING fts5 (name, body, tokenize="unicode61 tokenchars '_'");
CREATE VIRTUAL TABLE sheets USING fts5 (name, signals, body, tokenize="unicode61 tokenchars '_'");
"""


def _card(row: tuple[Any, ...]) -> Card:
    archs, languages, families, bottlenecks = (tuple(json.loads(items)) for items in row[3:7])
    return Card(row[0], row[1], row[2], archs, languages, families, bottlenecks, row[7])


def write(path: Path, pages: Sequence[Page]) -> int:
    """Make the index at `path` or, where one is, bring it up to date with `pages`. Returns the number of chunks.

    A killed writer leaves a broken file: write beside what serves. Raises sqlite3.Error.
    """
    base = sqlite3.connect(path, isolation_level=None)
    try:
        base.execute("PRAGMA journal_mode = OFF")
        if not base.execute("SELECT 1 FROM sqlite_master").fetchone():
            base.executescript(_TABLES)
        base.execute("BEGIN")
        held = dict(base.execute("SELECT id, digest FROM pages"))
        wanted = {page.id: _digest(page) for page in pages}
        for name in (name for name, digest in held.items() if wanted.get(name) != digest):
            _drop(base, name)
        for page in (page for page in pages if held.get(page.id) != wanted[page.id]):
            _insert(base, page, wanted[page.id])
        [size] = base.execute("SELECT count(*) FROM chunks").fetchone()
        base.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("schema", str(SCHEMA)), ("chunks", str(size))])
        base.execute("COMMIT")
        return int(size)
    finally:
        base.close()


def _digest(page: Page) -> str:
    return hashlib.sha256(repr(page).encode(errors="backslashreplace")).hexdigest()[:32]


def _drop(base: sqlite3.Connection, page: str) -> None:
    base.execute("DELETE FROM sheets WHERE rowid = (SELECT n FROM pages WHERE id = ?)", (page,))
    base.execute("DELETE FROM words WHERE rowid IN (SELECT n FROM chunks WHERE page = ?)", (page,))
    base.execute("DELETE FROM chunks WHERE page = ?", (page,))
    base.execute("DELETE FROM pages WHERE id = ?", (page,))


def _insert(base: sqlite3.Connection, page: Page, digest: str) -> None:
    row = (*_page_row(page), digest)
    n = base.execute(f"INSERT INTO pages VALUES (NULL{', ?' * len(row)})", row).lastrowid
    base.execute("INSERT INTO sheets (rowid, name, signals, body) VALUES (?, ?, ?, ?)", (n, *_sheet(page)))
    for part in {part.id: part for part in chunks(page)}.values():  # a document may say the same thing twice
        row = (part.id, part.page, part.heading, part.text, part.embedded)
        n = base.execute("INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?, ?)", row).lastrowid
        terms = _joined(f"{page.title} {part.heading}"), _joined(part.words)
        base.execute("INSERT INTO words (rowid, name, body) VALUES (?, ?, ?)", (n, *terms))


def _page_row(page: Page) -> tuple[str, ...]:
    lists = (page.archs, page.languages, page.families, page.bottlenecks)
    body = page.body if len(page.body) <= WHOLE else ""
    return (page.id, page.title, page.path, *(json.dumps(items) for items in lists), page.kind, body)


def _sheet(page: Page) -> tuple[str, str, str]:
    # Families and bottlenecks are left to the lift: on half the pages, they would take all weight from words such as
    # "softmax", since BM25 counts a term that is everywhere as nothing.
    headings = [line.lstrip("# ") for line in page.body.splitlines() if line.startswith("#")]
    return _joined(" ".join((page.id, page.title, *headings))), _joined(" ".join(page.signals)), _joined(page.body)


def _joined(text: str) -> str:
    return " ".join(words(text))


class LexicalIndex:
    """An index opened for reading; threads may share it. Raises LibraryError, with the file's name, wherever SQLite
    finds it broken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Two threads that run the same statement share its compiled form, and a connection closed under one crashes.
        self._turn = threading.Lock()
        try:
            self._base = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise LibraryError(f"the index {path} cannot be opened ({error})") from error
        try:
            self._check()
            for table in ("words", "sheets"):
                self._rows(f"CREATE VIRTUAL TABLE temp.{table}_terms USING fts5vocab('main', '{table}', 'row')")
            rows = self._rows(
                "SELECT id, title, path, archs, languages, families, bottlenecks, kind FROM pages ORDER BY id"
            )
            self.cards = {row[0]: _card(row) for row in rows}
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
            with self._turn:
                return self._base.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise LibraryError(
                f"the index {self.path} is broken ({error}); `python -m rag build` remakes it"
            ) from error

    def search(self, text: str, pages: Collection[str], limit: int) -> list[tuple[str, float]]:
        """Chunk ids of `pages` with the share that their BM25 score is of the best conceivable; ties fall by id."""
        return self._ranked(
            "SELECT chunks.id, bm25(words, ?, ?) AS cost FROM words JOIN chunks ON chunks.n = words.rowid "
            "WHERE words MATCH ? {} ORDER BY cost, chunks.id LIMIT ?",
            *("words", "chunks.page", CHUNK_WEIGHTS, text, pages, limit),
        )

    def search_pages(self, text: str, pages: Collection[str], limit: int) -> list[tuple[str, float]]:
        """Ids out of `pages` with the same share for the page as a whole, best first, ties by id."""
        return self._ranked(
            "SELECT pages.id, bm25(sheets, ?, ?, ?) AS cost FROM sheets JOIN pages ON pages.n = sheets.rowid "
            "WHERE sheets MATCH ? {} ORDER BY cost, pages.id LIMIT ?",
            *("sheets", "pages.id", SHEET_WEIGHTS, text, pages, limit),
        )

    def _ranked(
        self,
        sql: str,
        table: str,
        column: str,
        weights: Sequence[float],
        text: str,
        pages: Collection[str],
        limit: int,
    ) -> list[tuple[str, float]]:
        own, meant = asked(text)
        if not own:
            return []
        match = " OR ".join(f'"{term}"' for term in (*own * OWN, *meant))
        among, values = self._among(column, pages)
        rows = self._rows(sql.format(among), (*weights, match, *values, limit))
        best = self._best(table, own, meant)
        return [(str(row[0]), -float(row[1]) / best) for row in rows]

    def _among(self, column: str, pages: Collection[str]) -> tuple[str, tuple[str, ...]]:
        """The condition that admits only `pages`, and its values; none where that is all of them."""
        if len(pages) == len(self.cards):
            return "", ()
        return f"AND {column} IN (SELECT value FROM json_each(?))", (json.dumps(list(pages)),)

    def _best(self, table: str, own: Sequence[str], meant: Sequence[str]) -> float:
        """The score of a text that says nothing but the question's terms, so that indexes of all sizes compare."""
        size = self.size if table == "words" else len(self.cards)
        sql = f"SELECT term, doc FROM temp.{table}_terms WHERE term IN (SELECT value FROM json_each(?))"
        found = dict(self._rows(sql, (json.dumps([*own, *meant]),)))
        total = 0.0
        for terms, weight in ((own, OWN), (meant, 1)):
            for n in (found.get(term, 0) for term in terms):
                total += weight * max(math.log((size - n + 0.5) / (n + 0.5)), 1e-6)
        return total * (BM25_K1 + 1)

    def ids(self, pages: Collection[str]) -> list[str]:
        """The ids of all chunks of `pages`, in order."""
        among, values = self._among("page", pages)
        return [str(row[0]) for row in self._rows(f"SELECT id FROM chunks WHERE 1 {among} ORDER BY id", values)]

    def pages_of(self, names: Iterable[str]) -> dict[str, str]:
        """The page of each chunk id."""
        sql = "SELECT id, page FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._rows(sql, (json.dumps(list(names)),)))

    def whole(self, page: str) -> str:
        """All of a page of at most WHOLE characters, empty for a longer one."""
        return str(self._rows("SELECT body FROM pages WHERE id = ?", (page,))[0][0])

    def first_chunk(self, page: str) -> str:
        """The id of the chunk that a page begins with."""
        return str(self._rows("SELECT id FROM chunks WHERE page = ? ORDER BY n LIMIT 1", (page,))[0][0])

    def chunk(self, name: str) -> tuple[str, str]:
        """(heading, text) of a chunk."""
        heading, text = self._rows("SELECT heading, text FROM chunks WHERE id = ?", (name,))[0]
        return str(heading), str(text)

    def embedded(self) -> dict[str, str]:
        """What the model reads of every chunk, by chunk id."""
        return {str(row[0]): str(row[1]) for row in self._rows("SELECT id, embedded FROM chunks ORDER BY id")}

    def close(self) -> None:
        with self._turn:
            self._base.close()
