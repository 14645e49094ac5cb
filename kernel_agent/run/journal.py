"""A run on disk: one SQLite file, written once a record, which a killed run is read back from."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from kernel_agent.errors import KernelAgentError, Unavailable, UsageError
from kernel_agent.run import lock
from kernel_agent.run.budget import Charge
from kernel_agent.run.damage import understood
from kernel_agent.run.rows import grow, reader, row_of, text_of
from kernel_agent.run.tree import Record, Run
from kernel_agent.run.types import JSON, Description, Problem
from kernel_agent.settings import Settings, load_settings

FORMAT = "1"
"""Changes when an older journal could no longer be read."""

FILE = "journal.sqlite"

LOG = "server.log"
"""What the measuring server says on stderr, beside the journal."""

MANUAL = "manual"
"""The folder of prompts and replies where a person is the model."""

OURS = (
    *(FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal", lock.FILE, LOG),
    *(f"server-{n}.log" for n in range(2, 33)),
)
"""The files that stand in a run's directory before anything is recorded there."""

TABLES = {"meta", "records", "calls"}

SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, "
    "at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (kind, key))",
    "CREATE TABLE calls (key TEXT PRIMARY KEY, request TEXT NOT NULL, reply TEXT NOT NULL, usage TEXT NOT NULL, "
    "at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
)
SPENDING = (
    "CREATE TABLE IF NOT EXISTS charges (number INTEGER PRIMARY KEY, stage TEXT NOT NULL, model TEXT NOT NULL, "
    "prompt_tokens INTEGER NOT NULL, reply_tokens INTEGER NOT NULL, dollars REAL, seconds REAL NOT NULL, "
    "at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
)
"""Made with the first charge, so that a journal of an earlier version can be gone on with; there it may lack `at`."""

BESIDE = "('recalled', 'baseline', 'asked', 'devices')"
HELD = f"SELECT 1 FROM records WHERE kind NOT IN {BESIDE} UNION ALL SELECT 1 FROM calls LIMIT 1"
SYNCED = "PRAGMA synchronous=NORMAL"
"""With the write-ahead log a run is whole after a kill, and after a power cut too."""


class Journal:
    """The journal of one run directory, which it holds for itself until closed.

    Every write is one transaction: after a `kill -9` a record is there whole or not at all.
    """

    def __init__(self, directory: Path) -> None:
        """Lock the directory. Raises UsageError where it cannot be written or a live process holds it."""
        self.directory = directory
        self._new = False
        try:
            self._made = [place for place in (directory, *directory.parents) if not place.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock.take(directory)
        except OSError as error:
            raise UsageError(f"The run directory {directory} cannot be written ({error.strerror}).") from None
        try:
            self._rows = sqlite3.connect(directory / FILE, isolation_level=None)
        except sqlite3.Error as error:
            self._lock.close()
            raise UsageError(f"{directory / FILE} cannot be opened ({error}).") from None

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """Take a directory that holds no run yet, be it what an early kill left; `begin` writes the first lines.

        Left by a failure before anything is recorded, or by a stop before it has begun, the journal removes what the
        run has written and made.
        """
        _check_free(directory)
        journal = cls(directory)
        try:
            with understood(directory / FILE):
                if _tables(journal._rows):
                    raise UsageError(f"The run directory {directory} holds a run already; resume it, or take another.")
        except KernelAgentError:
            journal.close()
            raise
        journal._new = True
        return journal

    @classmethod
    def open(cls, directory: Path) -> Journal:
        """Go on with the journal of an earlier run."""
        _require(directory)
        journal = cls(directory)
        try:
            with understood(directory / FILE):
                _check(journal._rows, directory)
                journal._rows.execute(SYNCED)
        except KernelAgentError:
            journal.close()
            raise
        return journal

    def begin(self, problem: Problem, settings: Settings) -> None:
        """Write what the run is about: its problem, and its settings without the keys."""
        with self._room():
            self._rows.execute("PRAGMA journal_mode=WAL")
            self._rows.execute(SYNCED)
        with self._writing():
            for statement in SCHEMA:
                self._rows.execute(statement)
            self._put("format", FORMAT)
            self._put("problem", text_of(problem))
            self._put("settings", json.dumps(settings.keyless()))

    @property
    def problem(self) -> Problem:
        with understood(self.directory / FILE):
            return reader(Problem).validate_json(_meta(self._rows)["problem"])

    @property
    def settings(self) -> Settings:
        """The settings the run goes on with; keys come from the environment of today."""
        with understood(self.directory / FILE):
            return load_settings(**json.loads(_meta(self._rows)["settings"]))

    @settings.setter
    def settings(self, settings: Settings) -> None:
        with self._writing():
            self._put("settings", json.dumps(settings.keyless()))

    @property
    def described(self) -> bool:
        """Whether the server has said what the problem is; before that there is no run to load."""
        with understood(self.directory / FILE):
            return "description" in _meta(self._rows)

    def describe(self, description: Description) -> None:
        """Keep the description; a run has one."""
        with self._writing():
            self._put("description", text_of(description))

    def load(self) -> Run:
        """The run as far as it is recorded. Raises UsageError where it stopped before its problem was described."""
        with understood(self.directory / FILE):
            return run_of(self._rows, self.directory)

    def append(self, record: Record, seconds: float | None = None) -> None:
        """Write one record, and the time charged so far. Raises sqlite3.IntegrityError where it is there already."""
        with self._writing():
            self._rows.execute("INSERT INTO records (kind, key, body) VALUES (?, ?, ?)", row_of(record))
            if seconds is not None:
                self._put("seconds", json.dumps(round(seconds, 3)))

    @property
    def seconds(self) -> float:
        """The time charged when the last record was written."""
        with understood(self.directory / FILE):
            return float(_meta(self._rows).get("seconds", "0")) if _tables(self._rows) else 0.0

    def charge(self, charge: Charge) -> None:
        """Write what a model call cost, whether its reply could be used or not."""
        with self._writing():
            self._rows.execute(SPENDING)
            values = ", ".join("?" * len(astuple(charge)))
            names = ", ".join(asdict(charge))
            self._rows.execute(f"INSERT INTO charges ({names}) VALUES ({values})", astuple(charge))

    def charges(self) -> tuple[Charge, ...]:
        """What all model calls cost, in order."""
        with understood(self.directory / FILE):
            if "charges" not in _tables(self._rows):
                return ()
            names = "stage, model, prompt_tokens, reply_tokens, dollars, seconds"
            return tuple(Charge(*row) for row in self._rows.execute(f"SELECT {names} FROM charges ORDER BY number"))

    def call(self, key: str) -> str | None:
        """The reply recorded for a request, by the request's hash."""
        with understood(self.directory / FILE):
            row = self._rows.execute("SELECT reply FROM calls WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def record_call(self, key: str, request_json: str, reply: str, usage: JSON) -> None:
        """Keep a model's reply and what it cost, so that no run pays twice; again, it replaces what was there."""
        with self._writing():
            row = key, request_json, reply, json.dumps(dict(usage))
            self._rows.execute("INSERT OR REPLACE INTO calls (key, request, reply, usage) VALUES (?, ?, ?, ?)", row)

    def calls(self) -> tuple[tuple[str, str, JSON], ...]:
        """Every recorded call in the order of recording: its key, the reply, and what it cost."""
        with understood(self.directory / FILE):
            found = self._rows.execute("SELECT key, reply, usage FROM calls ORDER BY rowid")
            return tuple((str(key), str(reply), json.loads(usage)) for key, reply, usage in found)

    def close(self) -> None:
        """Give the directory back."""
        self._rows.close()
        self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        bare = self._new and error is not None and self._is_bare(stopped=not isinstance(error, Exception))
        self.close()
        if bare:
            with suppress(OSError):  # such as somebody else's files in the directory
                for name in OURS:
                    (self.directory / name).unlink(missing_ok=True)
                for place in self._made:
                    place.rmdir()

    def _is_bare(self, stopped: bool) -> bool:
        """Whether there is nothing worth resuming: nothing that was found, no answer, no prompt that waits.

        Whoever has stopped a run may go on with it once it has begun.
        """
        if (self.directory / MANUAL).exists():
            return False
        try:
            if not (there := _tables(self._rows)) or stopped:
                return not there
            return self._rows.execute(HELD).fetchone() is None
        except sqlite3.Error:
            return False

    def _put(self, name: str, value: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._room(), _transaction(self._rows):
            yield

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Unavailable(
                f"The journal in {self.directory} cannot be written ({error}); what it holds is safe: "
                f"make room for it, then resume {self.directory}."
            ) from None


@contextmanager
def _transaction(rows: sqlite3.Connection) -> Iterator[None]:
    rows.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        rows.execute("ROLLBACK")
        raise
    rows.execute("COMMIT")


def _check_free(directory: Path) -> None:
    """Raises UsageError where it holds more than an early kill leaves and the replies of a person, and no run."""
    held = directory.iterdir() if directory.is_dir() else ()
    others = sorted(path.name for path in held if path.name not in (*OURS, MANUAL) and path.suffix != ".half")
    if others and not begun(directory):
        first = ", ".join(others[:3])
        raise UsageError(f"{directory} holds files that no run has written ({first}): choose another run directory.")


def begun(directory: Path) -> bool:
    """Whether a run has begun in this directory, so that there is something to resume; takes no lock."""
    try:
        if not (directory / FILE).is_file():
            return False
        with closing(sqlite3.connect(directory / FILE)) as rows:
            return bool(_tables(rows))
    except (OSError, sqlite3.Error):
        return False


def read(directory: Path) -> Run:
    """The run in a directory as far as it is recorded, whoever is writing it now; takes no lock."""
    with reading(directory) as rows:
        return run_of(rows, directory)


@contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """The rows of the journal in a directory as they stand now, whoever is writing it; takes no lock."""
    _require(directory)
    with understood(directory / FILE):
        if _opens(directory / FILE):
            with _opened(directory / FILE, directory) as rows:
                yield rows
            return
        with TemporaryDirectory() as folder:  # where nothing can be written SQLite cannot read beside a log either
            try:
                for file in (FILE, f"{FILE}-wal"):
                    if (directory / file).exists():
                        shutil.copyfile(directory / file, Path(folder) / file)
            except OSError as error:
                raise UsageError(f"The journal in {directory} cannot be read ({error.strerror}).") from None
            with _opened(Path(folder) / FILE, directory) as rows:
                yield rows


def _opens(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(file)) as rows:
            _tables(rows)
    except sqlite3.OperationalError:
        return False
    return True


@contextmanager
def _opened(file: Path, directory: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, isolation_level=None)) as rows:
        _check(rows, directory)
        rows.execute("BEGIN")  # all that is read is of one moment
        yield rows


def _require(directory: Path) -> None:
    try:
        if (directory / FILE).is_file():
            return
        if not directory.is_dir():
            raise UsageError(f"There is no folder {directory}; each run has one of its own, in runs by default.")
        runs = sorted(path.parent for path in directory.glob(f"*/{FILE}"))
    except OSError as error:
        raise UsageError(f"{directory} cannot be read ({error.strerror}).") from None
    within = f" It holds {len(runs)} runs; give one of them, such as {runs[-1]}." if runs else ""
    raise UsageError(f"There is no run in {directory}: {FILE} is missing.{within}")


def _check(rows: sqlite3.Connection, directory: Path) -> None:
    there = _tables(rows)
    if not there:
        raise UsageError(f"Nothing was recorded in {directory}: start again with `python -m kernel_agent run`.")
    if missing := TABLES - there:
        raise KeyError(f"it has no table {min(missing)}")
    if (found := _meta(rows).get("format")) != FORMAT:
        raise UsageError(f"The journal in {directory} has format {found}, this version reads format {FORMAT}.")


def _tables(rows: sqlite3.Connection) -> set[str]:
    """All that a run writes at its beginning comes in one transaction: no table, no run."""
    return {str(name) for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def run_of(rows: sqlite3.Connection, directory: Path) -> Run:
    """The run that these rows record. Raises UsageError where its problem was not described yet."""
    meta = _meta(rows)
    if "description" not in meta:
        raise UsageError(f"The run in {directory} stopped before its problem was described; resume it first.")
    run = Run(
        reader(Problem).validate_json(meta["problem"]),
        load_settings(**json.loads(meta["settings"])),
        reader(Description).validate_json(meta["description"]),
    )
    if "eager" not in run.description.baselines:
        raise KeyError("its problem has no eager baseline")
    grow(run, rows)
    return run


def _meta(rows: sqlite3.Connection) -> dict[str, str]:
    return dict(rows.execute("SELECT name, value FROM meta"))
