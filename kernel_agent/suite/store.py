"""A suite on disk: one SQLite file of records beside the run directories of its problems.

DIRECTORY/suite.sqlite, DIRECTORY/problems/<id>/ (a run, as `show` and `resume` take it), DIRECTORY/logs/<id>.log.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kernel_agent.errors import KernelAgentError, Unavailable, UsageError
from kernel_agent.run import lock
from kernel_agent.run.rows import reader, text_of
from kernel_agent.suite.plan import Grant, Plan
from kernel_agent.suite.types import Confirmed, Outcome, State, SuiteProblem, Verdict

FORMAT = "1"
"""Changes when an older suite could no longer be read."""

FILE = "suite.sqlite"
LOGS = "logs"

Record = SuiteProblem | Outcome | Grant | Verdict | Confirmed
KINDS: Mapping[str, type[Record]] = {
    "problem": SuiteProblem,
    "outcome": Outcome,
    "grant": Grant,
    "verdict": Verdict,
    "confirmed": Confirmed,
}

SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, problem TEXT NOT NULL, "
    "body TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
)


@dataclass(frozen=True, slots=True)
class Suite:
    """What is recorded of a suite, in the order of its problems.

    `outcomes` has the last word on each problem, `grants` all of them in order; `seconds` is how long its sessions
    have lasted, to a few seconds where one was killed. `verdicts` and `confirmed` have the last word of the judge on
    each kernel made elsewhere, and on each delivered file.
    """

    directory: Path
    plan: Plan
    problems: tuple[SuiteProblem, ...]
    outcomes: Mapping[str, Outcome]
    grants: tuple[Grant, ...]
    seconds: float = 0.0
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    confirmed: Mapping[str, Confirmed] = field(default_factory=dict)

    def outcome(self, problem: SuiteProblem) -> Outcome:
        """What became of a problem so far; waiting where nothing is recorded."""
        return self.outcomes.get(problem.id, Outcome(problem.id, State.WAITING))

    def granted(self, problem: str) -> tuple[Grant, ...]:
        """A problem's grants, its first share among them."""
        return tuple(grant for grant in self.grants if grant.problem == problem)


class Store:
    """A suite's directory, held for itself until closed. Every record is one transaction: after a `kill -9` it is
    there whole or not at all."""

    def __init__(self, directory: Path) -> None:
        """Lock the directory. Raises UsageError where it cannot be written, or another process plays a suite in it."""
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock.take(directory)
        except UsageError:
            raise UsageError(
                f"Another process plays the suite in {directory}: wait for it, or take another directory."
            ) from None
        except OSError as error:
            raise UsageError(f"The suite's directory {directory} cannot be written ({error.strerror}).") from None
        try:
            self._rows = sqlite3.connect(directory / FILE, isolation_level=None)
        except sqlite3.Error as error:
            self._lock.close()
            raise UsageError(f"The suite in {directory} cannot be opened ({error}).") from None

    @classmethod
    def create(
        cls, directory: Path, plan: Plan, problems: tuple[SuiteProblem, ...], outcomes: tuple[Outcome, ...] = ()
    ) -> Store:
        """Begin a suite in a directory that holds none; `outcomes` are those of problems that cannot be played.

        Raises UsageError where it holds one, or a run.
        """
        if (directory / "journal.sqlite").exists():
            raise UsageError(f"{directory} holds a run: choose another directory for the suite.")
        store = cls(directory)
        try:
            with store._writing():
                if _tables(store._rows):
                    raise UsageError(f"{directory} holds a suite already: resume it, or take another directory.")
                for statement in SCHEMA:
                    store._rows.execute(statement)
                store._put("format", FORMAT)
                store._put("plan", text_of(plan))
                for problem in problems:
                    store._insert(problem)
                for outcome in outcomes:
                    store._insert(outcome)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Go on with the suite in a directory."""
        _require(directory)
        store = cls(directory)
        try:
            with _understood(directory):
                _check(store._rows, directory)
        except KernelAgentError:
            store.close()
            raise
        return store

    def load(self) -> Suite:
        """The suite as far as it is recorded."""
        with _understood(self.directory):
            return _suite(self._rows, self.directory)

    def append(self, *records: Record) -> None:
        """Write records, all or none."""
        with self._writing():
            for record in records:
                self._insert(record)

    def replan(self, plan: Plan) -> None:
        """From now on the suite goes by another plan."""
        with self._writing():
            self._put("plan", text_of(plan))

    def lasted(self, seconds: float) -> None:
        """Write how long the suite has lasted, over all sessions."""
        with self._writing():
            self._put("seconds", json.dumps(round(seconds, 3)))

    def close(self) -> None:
        """Give the directory back."""
        self._rows.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _insert(self, record: Record) -> None:
        kind = next(name for name, its in KINDS.items() if its is type(record))
        problem = record.id if isinstance(record, SuiteProblem) else record.problem
        row = kind, problem, text_of(record)
        self._rows.execute("INSERT INTO records (kind, problem, body) VALUES (?, ?, ?)", row)

    def _put(self, name: str, value: str) -> None:
        self._rows.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._rows.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._rows.execute("ROLLBACK")
                raise
            self._rows.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise Unavailable(
                f"The suite in {self.directory} cannot be written ({error}); what it holds is safe: "
                f"make room for it, then resume {self.directory}."
            ) from None


def begun(directory: Path) -> bool:
    """Whether a suite has begun in this directory; takes no lock."""
    try:
        if not (directory / FILE).is_file():
            return False
        with closing(sqlite3.connect(directory / FILE)) as rows:
            return bool(_tables(rows))
    except (OSError, sqlite3.Error):
        return False


def read(directory: Path) -> Suite:
    """The suite in a directory as far as it is recorded, whoever is playing it now; takes no lock."""
    _require(directory)
    with _understood(directory), closing(sqlite3.connect(directory / FILE, isolation_level=None)) as rows:
        _check(rows, directory)
        return _suite(rows, directory)


def _require(directory: Path) -> None:
    if not (directory / FILE).is_file():
        raise UsageError(f"There is no suite in {directory}: {FILE} is missing.")


@contextmanager
def _understood(directory: Path) -> Iterator[None]:
    """Reading a suite; whatever is wrong with what stands in it becomes one sentence."""
    try:
        yield
    except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"{directory / FILE} cannot be read, or is not of a suite ({why}).") from None


def _check(rows: sqlite3.Connection, directory: Path) -> None:
    if not _tables(rows):
        raise UsageError(f"Nothing was recorded in {directory}: start again with `python -m kernel_agent suite run`.")
    if (found := _meta(rows).get("format")) != FORMAT:
        raise UsageError(f"The suite in {directory} has format {found}, this version reads format {FORMAT}.")


def _tables(rows: sqlite3.Connection) -> set[str]:
    return {str(name) for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _meta(rows: sqlite3.Connection) -> dict[str, str]:
    return dict(rows.execute("SELECT name, value FROM meta"))


def _suite(rows: sqlite3.Connection, directory: Path) -> Suite:
    meta = _meta(rows)
    found = rows.execute("SELECT kind, body FROM records ORDER BY number")
    records = [reader(KINDS[kind]).validate_json(body) for kind, body in found if kind in KINDS]
    return Suite(
        directory,
        reader(Plan).validate_json(meta["plan"]),
        tuple(record for record in records if isinstance(record, SuiteProblem)),
        {record.problem: record for record in records if isinstance(record, Outcome)},
        tuple(record for record in records if isinstance(record, Grant)),
        float(meta.get("seconds", "0")),
        {record.problem: record for record in records if isinstance(record, Verdict)},
        {record.problem: record for record in records if isinstance(record, Confirmed)},
    )
