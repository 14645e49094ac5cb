"""A directory's SQLite file, which one process holds and writes and any may read: runs and suites are kept so."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from kernel_agent.errors import DiskError, UsageError
from kernel_agent.run import lock

LOG = "server.log"
"""What the measuring server says on stderr, beside the file."""

META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"

PLACE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
"""Faults of where a file is, and not of what stands in it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file keeps: its name, the noun for what it keeps and for itself, the tables that it needs, and the
    command that begins one. `format` changes when an older one could no longer be read."""

    file: str
    keeps: str
    noun: str
    tables: frozenset[str]
    format: str
    command: str

    @property
    def files(self) -> tuple[str, ...]:
        """The files that may stand in the directory before anything is recorded there."""
        own = (self.file, *(f"{self.file}-{more}" for more in ("wal", "shm", "journal")))
        return (*own, lock.FILE, LOG, *(f"server-{n}.log" for n in range(2, 33)))


class Database:
    """A directory's file, held until closed.

    Every write is one transaction: after a `kill -9` a record is there whole or not at all.
    """

    kind: Kind

    def __init__(self, directory: Path) -> None:
        """Lock the directory. Raises UsageError where it cannot be written or a live process holds it."""
        self.directory = directory
        try:
            self._made = [place for place in (directory, *directory.parents) if not place.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock.take(directory)
        except OSError as error:
            raise UsageError(
                f"The {self.kind.keeps}'s directory {directory} cannot be written ({error.strerror})."
            ) from None
        try:
            self._rows = sqlite3.connect(directory / self.kind.file, isolation_level=None)
        except sqlite3.Error as error:
            self._lock.close()
            raise UsageError(f"{directory / self.kind.file} cannot be opened ({error}).") from None

    @classmethod
    def _new(cls, directory: Path, *besides: str) -> Self:
        """Take a directory that holds no more than an early kill leaves, and files of the names `besides`.

        Raises UsageError where its file keeps something, or others have written there.
        """
        kind = cls.kind
        try:
            held = [*directory.iterdir()] if directory.is_dir() else []
        except OSError as error:
            raise UsageError(f"{directory} cannot be read ({error.strerror}).") from None
        others = sorted(one.name for one in held if one.name not in (*kind.files, *besides) and one.suffix != ".half")
        if others and not begun(directory, kind):
            raise UsageError(
                f"{directory} holds files that no {kind.keeps} has written ({', '.join(others[:3])}): "
                f"choose another {kind.keeps} directory."
            )
        made = cls(directory)
        with made._closed_by_a_fault(), made._reading():
            if tables(made._rows):
                raise UsageError(f"{directory} holds a {cls.kind.keeps} already; resume it, or take another directory.")
        return made

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Go on with what a directory keeps."""
        require(directory, cls.kind)
        found = cls(directory)
        with found._closed_by_a_fault(), found._reading():
            check(found._rows, directory, cls.kind)
        return found

    def close(self) -> None:
        """Give the directory back."""
        self._rows.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _closed_by_a_fault(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _put(self, name: str, value: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with understood(self.directory, self.kind):
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._room():
            self._rows.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._rows.execute("COMMIT")
            except BaseException:
                if self._rows.in_transaction:  # SQLite may end it itself where the disk is full
                    self._rows.execute("ROLLBACK")
                raise

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise DiskError(
                f"The {self.kind.noun} in {self.directory} cannot be written ({error}); what it holds is safe: "
                f"make room for it, then resume {self.directory}."
            ) from None


def begun(directory: Path, kind: Kind) -> bool:
    """Whether something is kept in this directory, so that it can be gone on with; takes no lock."""
    try:
        if not (directory / kind.file).is_file():
            return False
        with closing(sqlite3.connect(directory / kind.file)) as rows:
            return bool(tables(rows))
    except (OSError, sqlite3.Error):
        return False


@contextmanager
def reading(directory: Path, kind: Kind) -> Iterator[sqlite3.Connection]:
    """The rows of a directory's file as they stand now, whoever is writing it; takes no lock."""
    require(directory, kind)
    with understood(directory, kind):
        if _opens(directory / kind.file):
            with _opened(directory / kind.file, directory, kind) as rows:
                yield rows
            return
        with TemporaryDirectory() as folder:  # where nothing can be written SQLite cannot read beside a log either
            try:
                for file in (kind.file, f"{kind.file}-wal"):
                    if (directory / file).exists():
                        shutil.copyfile(directory / file, Path(folder) / file)
            except OSError as error:
                raise UsageError(f"The {kind.noun} in {directory} cannot be read ({error.strerror}).") from None
            with _opened(Path(folder) / kind.file, directory, kind) as rows:
                yield rows


def _opens(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(file)) as rows:
            tables(rows)
    except sqlite3.OperationalError:
        return False
    return True


@contextmanager
def _opened(file: Path, directory: Path, kind: Kind) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, isolation_level=None)) as rows:
        check(rows, directory, kind)
        rows.execute("BEGIN")  # all that is read is of one moment
        yield rows


def require(directory: Path, kind: Kind) -> None:
    """Raises UsageError where a directory has no such file."""
    try:
        if (directory / kind.file).is_file():
            return
        if not directory.is_dir():
            raise UsageError(
                f"There is no folder {directory}; each {kind.keeps} has one of its own, in runs by default."
            )
        others = sorted(path.parent for path in directory.glob(f"*/{kind.file}"))
    except OSError as error:
        raise UsageError(f"{directory} cannot be read ({error.strerror}).") from None
    within = f" It holds {len(others)} {kind.keeps}s; give one of them, such as {others[-1]}." if others else ""
    raise UsageError(f"There is no {kind.keeps} in {directory}: {kind.file} is missing.{within}")


def check(rows: sqlite3.Connection, directory: Path, kind: Kind) -> None:
    """Raises UsageError where nothing is recorded, or in another format; KeyError where a table is missing."""
    there = tables(rows)
    if not there:
        raise UsageError(f"Nothing was recorded in {directory}: start again with `{kind.command}`.")
    if missing := kind.tables - there:
        raise KeyError(f"it has no table {min(missing)}")
    if (found := meta(rows).get("format")) != kind.format:
        raise UsageError(f"The {kind.noun} in {directory} has format {found}, this version reads format {kind.format}.")


def tables(rows: sqlite3.Connection) -> set[str]:
    """All that is written at the beginning comes in one transaction: no table, nothing kept."""
    return {str(name) for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def meta(rows: sqlite3.Connection) -> dict[str, str]:
    """What is kept once, by its name."""
    return dict(rows.execute("SELECT name, value FROM meta"))


@contextmanager
def understood(directory: Path, kind: Kind) -> Iterator[None]:
    """Reading; whatever is wrong with what stands in the file, or with the disk it is on, becomes one sentence."""
    try:
        yield
    except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in PLACE:
            raise DiskError(
                f"The {kind.noun} in {directory} cannot be read ({error}); what it holds is safe: "
                f"see to the disk, which may be full, then resume {directory}."
            ) from None
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(
            f"{directory / kind.file} is damaged, or keeps no {kind.keeps} ({why}): start a new {kind.keeps}."
        ) from None
