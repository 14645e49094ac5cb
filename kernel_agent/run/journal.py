"""A run on disk: one SQLite file, written once a record, which a killed run is read back from."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple
from pathlib import Path
from types import TracebackType

from kernel_agent.errors import UsageError
from kernel_agent.run import database
from kernel_agent.run.budget import Charge
from kernel_agent.run.database import META, Database, Kind, meta, tables
from kernel_agent.run.rows import grow, reader, row_of, text_of
from kernel_agent.run.tree import Record, Run
from kernel_agent.run.types import JSON, Description, Problem
from kernel_agent.settings import Settings, load_settings

FILE = "journal.sqlite"

MANUAL = "manual"
"""The folder of prompts and replies where a person is the model."""

KIND = Kind(FILE, "run", "journal", frozenset({"meta", "records", "calls"}), "1", "python -m kernel_agent run")

SCHEMA = (
    META,
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


class Journal(Database):
    """The journal of one run directory."""

    kind = KIND
    _is_new = False

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """Take a directory that holds no run yet, be it what an early kill left; `begin` writes the first lines.

        Left by a failure before anything is recorded, or by a stop before it has begun, the journal removes what the
        run has written and made.
        """
        journal = cls._new(directory, MANUAL)
        journal._is_new = True
        return journal

    @classmethod
    def open(cls, directory: Path) -> Journal:
        """Go on with the journal of an earlier run."""
        journal = super().open(directory)
        with journal._closed_by_a_fault(), journal._reading():
            journal._rows.execute(SYNCED)
        return journal

    def begin(self, problem: Problem, settings: Settings) -> None:
        """Write what the run is about: its problem, and its settings without the keys."""
        with self._room():
            self._rows.execute("PRAGMA journal_mode=WAL")
            self._rows.execute(SYNCED)
        with self._writing():
            for statement in SCHEMA:
                self._rows.execute(statement)
            self._put("format", KIND.format)
            self._put("problem", text_of(problem))
            self._put("settings", json.dumps(settings.keyless()))

    @property
    def problem(self) -> Problem:
        with self._reading():
            return reader(Problem).validate_json(meta(self._rows)["problem"])

    @property
    def settings(self) -> Settings:
        """The settings the run goes on with; keys come from the environment of today."""
        with self._reading():
            return load_settings(**json.loads(meta(self._rows)["settings"]))

    @settings.setter
    def settings(self, settings: Settings) -> None:
        with self._writing():
            self._put("settings", json.dumps(settings.keyless()))

    @property
    def described(self) -> bool:
        """Whether the server has said what the problem is; before that there is no run to load."""
        with self._reading():
            return "description" in meta(self._rows)

    def describe(self, description: Description) -> None:
        """Keep the description; a run has one."""
        with self._writing():
            self._put("description", text_of(description))

    def load(self) -> Run:
        """The run as far as it is recorded. Raises UsageError where it stopped before its problem was described."""
        with self._reading():
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
        with self._reading():
            return float(meta(self._rows).get("seconds", "0")) if tables(self._rows) else 0.0

    def charge(self, charge: Charge) -> None:
        """Write what a model call cost, whether its reply could be used or not."""
        with self._writing():
            self._rows.execute(SPENDING)
            values = ", ".join("?" * len(astuple(charge)))
            names = ", ".join(asdict(charge))
            self._rows.execute(f"INSERT INTO charges ({names}) VALUES ({values})", astuple(charge))

    def charges(self) -> tuple[Charge, ...]:
        """What all model calls cost, in order."""
        with self._reading():
            if "charges" not in tables(self._rows):
                return ()
            names = "stage, model, prompt_tokens, reply_tokens, dollars, seconds"
            return tuple(Charge(*row) for row in self._rows.execute(f"SELECT {names} FROM charges ORDER BY number"))

    def call(self, key: str) -> str | None:
        """The reply recorded for a request, by the request's hash."""
        with self._reading():
            row = self._rows.execute("SELECT reply FROM calls WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def record_call(self, key: str, request_json: str, reply: str, usage: JSON) -> None:
        """Keep a model's reply and what it cost, so that no run pays twice; again, it replaces what was there."""
        with self._writing():
            row = key, request_json, reply, json.dumps(dict(usage))
            self._rows.execute("INSERT OR REPLACE INTO calls (key, request, reply, usage) VALUES (?, ?, ?, ?)", row)

    def calls(self) -> tuple[tuple[str, str, JSON], ...]:
        """Every recorded call in the order of recording: its key, the reply, and what it cost."""
        with self._reading():
            found = self._rows.execute("SELECT key, reply, usage FROM calls ORDER BY rowid")
            return tuple((str(key), str(reply), json.loads(usage)) for key, reply, usage in found)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        bare = self._is_new and error is not None and self._is_bare(stopped=not isinstance(error, Exception))
        self.close()
        if bare:
            with suppress(OSError):  # such as somebody else's files in the directory
                for name in KIND.files:
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
            if not (there := tables(self._rows)) or stopped:
                return not there
            return self._rows.execute(HELD).fetchone() is None
        except sqlite3.Error:
            return False


def begun(directory: Path) -> bool:
    """Whether a run has begun in this directory, so that there is something to resume; takes no lock."""
    return database.begun(directory, KIND)


def read(directory: Path) -> Run:
    """The run in a directory as far as it is recorded, whoever is writing it now; takes no lock."""
    with reading(directory) as rows:
        return run_of(rows, directory)


@contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """The rows of the journal in a directory as they stand now, whoever is writing it; takes no lock."""
    with database.reading(directory, KIND) as rows:
        yield rows


def run_of(rows: sqlite3.Connection, directory: Path) -> Run:
    """The run that these rows record. Raises UsageError where its problem was not described yet."""
    kept = meta(rows)
    if "description" not in kept:
        raise UsageError(f"The run in {directory} stopped before its problem was described; resume it first.")
    run = Run(
        reader(Problem).validate_json(kept["problem"]),
        load_settings(**json.loads(kept["settings"])),
        reader(Description).validate_json(kept["description"]),
    )
    if "eager" not in run.description.baselines:
        raise KeyError("its problem has no eager baseline")
    grow(run, rows)
    return run
