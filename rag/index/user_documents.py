"""The documents that a user added: where they stand, what was read of them, and the index made from that.

CACHE/own/record.sqlite              the added paths; of each file its hash and parts, or why it was skipped
CACHE/own/generations/<fingerprint>  the index, as for the corpus; the record names the one that serves
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rag.documents import chunk, readers
from rag.documents.page import Page
from rag.documents.readers import Part, UnreadableError
from rag.errors import LibraryError
from rag.index import lexical

_TABLES = """
CREATE TABLE IF NOT EXISTS roots (path TEXT PRIMARY KEY, tags TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, root TEXT NOT NULL, digest TEXT, size INTEGER, mtime INTEGER,
                                  skipped TEXT, parts TEXT);
CREATE TABLE IF NOT EXISTS serving (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), generation TEXT);
"""

COMMIT_S = 0.2
"""Seconds of reading between two writes to the disk, each of which costs as much as reading a file."""

READERS = "2"  # 1: only UTF-8 was read
"""Raise it whenever a reader gives other parts for the same bytes: files are then read again."""


@dataclass(frozen=True, slots=True)
class Tags:
    """What the user says of an added path: for which architectures and languages it holds (none: all), its families."""

    archs: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


@dataclass(slots=True)
class Count:
    """What an addition found: files by what became of them, the skipped ones with their reason and by reason."""

    added: int = 0
    changed: int = 0
    kept: int = 0
    removed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    named: list[tuple[str, str]] = field(default_factory=list)

    def skip(self, file: Path, reason: str) -> None:
        """Count a file that is not read, and keep its name."""
        self.skipped[reason] += 1
        self.named.append((os.fsencode(file).decode(errors="replace"), reason))


@dataclass(frozen=True, slots=True)
class Root:
    """An added path with its tags, how many files serve, how many parts they have, and the skipped ones by reason."""

    path: str
    tags: Tags
    files: int
    parts: int
    skipped: dict[str, int]


class Record:
    """The record of what was added. Raises LibraryError where its file is broken. One writer at a time: see ingest."""

    def __init__(self, cache: Path) -> None:
        self.directory = cache / "own"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.directory / "record.sqlite"
        with self._named():
            self._base = sqlite3.connect(self.path)
        try:
            with self._named():
                self._base.executescript(_TABLES)
        except LibraryError:
            self._base.close()
            raise

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LibraryError(
                f"the record of your documents {self.path} is broken ({error}): remove it and add them again"
            ) from error

    def add(self, path: Path, tags: Tags) -> Iterator[tuple[Count, Path]]:
        """Read a file, or all files of a directory, anew where their content changed; yields after each file.

        What was read is recorded every `COMMIT_S`, so that a killed run goes on where it was. Raises LibraryError for
        no such path.
        """
        path = path.expanduser().resolve()
        if not path.exists() or not _is_text(path):
            raise LibraryError(
                f"there is no {path}" if _is_text(path) else f"{str(path)!r} is no UTF-8 name: give another"
            )
        known = self._known(path)
        found = [path] if path.is_file() else list(_files(path))
        count = Count()
        with self._base:
            self._base.execute("INSERT OR REPLACE INTO roots VALUES (?, ?)", (str(path), json.dumps(asdict(tags))))
        recorded = time.monotonic()
        for file in found:
            if _is_text(file):
                self._take(file, path, known.get(str(file)), count)
            else:
                count.skip(file, "its name is not UTF-8")
            if time.monotonic() - recorded > COMMIT_S:
                self._base.commit()
                recorded = time.monotonic()
            yield count, file
        gone = set(known) - set(map(str, found))
        with self._base:
            self._base.executemany("DELETE FROM files WHERE path = ?", [(name,) for name in sorted(gone)])
        count.removed = len(gone)
        yield count, path

    def _known(self, path: Path) -> dict[str, str | None]:
        rows = self._base.execute("SELECT path, digest FROM files WHERE root = ?", (str(path),))
        return dict(rows.fetchall())

    def _take(self, file: Path, root: Path, before: str | None, count: Count) -> None:
        reason, parts, digest = None, "[]", None
        size = mtime = 0
        try:
            stat = file.stat()
            size, mtime = stat.st_size, stat.st_mtime_ns
            reason = readers.fault(file, size)
            if reason is None:
                digest = hashlib.sha256(READERS.encode() + file.read_bytes()).hexdigest()
                if digest == before:
                    self._touch(file, root, count)
                    return
                parts = json.dumps([asdict(part) for part in readers.read(file)])
        except UnreadableError as error:
            reason = str(error)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        if reason is not None:
            count.skip(file, reason)
        elif before is None:
            count.added += 1
        else:
            count.changed += 1
        row = (str(file), str(root), digest, size, mtime, reason, parts)
        self._base.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _touch(self, file: Path, root: Path, count: Count) -> None:
        """A file whose content is that of last time, served or skipped."""
        [reason] = self._base.execute("SELECT skipped FROM files WHERE path = ?", (str(file),)).fetchone()
        if reason is None:
            count.kept += 1
        else:
            count.skip(file, reason)
        row = (str(root), file.stat().st_mtime_ns, str(file))
        self._base.execute("UPDATE files SET root = ?, mtime = ? WHERE path = ?", row)

    def remove(self, path: Path) -> int:
        """Forget an added path, or what lies below it. Returns the number of files; raises LibraryError for none."""
        name = str(path.expanduser().resolve())
        below = f"{name.rstrip('/')}/"
        with self._base:
            where = "path = ? OR root = ? OR substr(path, 1, length(?)) = ?"
            count = self._base.execute(f"DELETE FROM files WHERE {where}", (name, name, below, below)).rowcount
            roots = self._base.execute(
                "DELETE FROM roots WHERE path = ? OR substr(path, 1, length(?)) = ?", (name, below, below)
            ).rowcount
        if not count and not roots:
            raise LibraryError(f"nothing was added from {name}; `python -m rag list` says what was")
        return count

    def roots(self) -> list[Root]:
        """What was added, in order of path."""
        found = []
        for path, tags in self._base.execute("SELECT path, tags FROM roots ORDER BY path").fetchall():
            rows = self._base.execute(
                "SELECT skipped, json_array_length(parts) FROM files WHERE root = ?", (path,)
            ).fetchall()
            served = [parts for skipped, parts in rows if skipped is None]
            reasons = Counter(skipped for skipped, _ in rows if skipped is not None)
            found.append(Root(path, _tags(tags), len(served), sum(served), dict(reasons.most_common())))
        return found

    def stale(self) -> int:
        """How many files changed or went since they were read, told by size and time alone."""
        rows = self._base.execute("SELECT path, size, mtime FROM files WHERE skipped IS NULL").fetchall()
        return sum(_moved(Path(path), size, mtime) for path, size, mtime in rows)

    def pages(self) -> list[Page]:
        """The parts of all files as pages, the same content once, in order of path."""
        tags = {path: _tags(text) for path, text in self._base.execute("SELECT path, tags FROM roots")}
        rows = self._base.execute("SELECT path, root, digest, parts FROM files WHERE skipped IS NULL ORDER BY path")
        pages, seen = [], set()
        for path, root, digest, parts in rows:
            if digest not in seen:
                seen.add(digest)
                pages += [_page(path, Part(**part), tags[root]) for part in json.loads(parts)]
        return pages

    @property
    def fingerprint(self) -> str:
        """Changes with any file's content, path or tags, and with our own versions."""
        h = hashlib.sha256(f"{chunk.VERSION} {lexical.SCHEMA}".encode())
        rows = "SELECT files.path, digest, tags FROM files JOIN roots ON roots.path = root WHERE skipped IS NULL"
        for row in self._base.execute(f"{rows} ORDER BY files.path"):
            h.update("\0".join(row).encode() + b"\0")
        return h.hexdigest()[:16]

    @property
    def serving(self) -> Path | None:
        """The generation that answers; None where nothing was added, or it is gone."""
        row = self._base.execute("SELECT generation FROM serving").fetchone()
        path = self.directory / "generations" / row[0] if row else None
        return path if path and path.is_dir() else None

    def serve(self, generation: Path | None) -> None:
        """Swap to a generation that is complete; the one before it stays for who has it open, older ones go."""
        before = self.serving
        with self._base:
            self._base.execute("DELETE FROM serving")
            if generation is not None:
                self._base.execute("INSERT INTO serving VALUES (1, ?)", (generation.name,))
        home = self.directory / "generations"
        for path in home.iterdir() if home.is_dir() else ():
            if path not in (before, generation):
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        self._base.close()


def served(cache: Path) -> Path | None:
    """The generation of the user's documents that answers, without making a record where there is none.

    Raises LibraryError where the record cannot be read.
    """
    if not (cache / "own" / "record.sqlite").is_file():
        return None
    with contextlib.closing(Record(cache)) as record:
        try:
            return record.serving
        except sqlite3.Error as error:
            raise LibraryError(f"the record of your documents {record.path} cannot be read ({error})") from error


def _files(root: Path) -> Iterator[Path]:
    """The files below a directory in order, hidden ones and links to directories left out."""
    for where, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if name[0] not in "._")
        yield from (Path(where) / name for name in sorted(names) if name[0] != ".")


def _is_text(path: Path) -> bool:
    """Whether the name can be kept: Python holds a name's other bytes as surrogates, SQLite does not."""
    return not any("\ud800" <= letter <= "\udfff" for letter in str(path))


def _moved(path: Path, size: int, mtime: int) -> bool:
    try:
        stat = path.stat()
    except OSError:
        return True
    return (stat.st_size, stat.st_mtime_ns) != (size, mtime)


def _tags(text: str) -> Tags:
    return Tags(**{key: tuple(value) for key, value in json.loads(text).items()})


def _page(path: str, part: Part, tags: Tags) -> Page:
    language = readers.LANGUAGE.get(Path(path).suffix.lower())
    languages: Iterable[str] = tags.languages or ((language,) if language else ())
    return Page(
        id=f"{path}#{part.anchor}" if part.anchor else path,
        title=part.title,
        path=path,
        body=part.body,
        archs=tags.archs,
        families=tags.families,
        languages=tuple(languages),
        kind="own",
        is_code=part.is_code,
    )
