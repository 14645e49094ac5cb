"""A suite on disk: one SQLite file of records beside the run directories of its problems.

DIRECTORY/suite.sqlite, DIRECTORY/problems/<id>/ (a run, as `show` and `resume` take it), DIRECTORY/logs/<id>.log.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_agent.errors import UsageError
from kernel_agent.run import database, journal
from kernel_agent.run.database import META, Database, Kind, meta
from kernel_agent.run.rows import reader, text_of
from kernel_agent.suite.plan import Grant, Plan
from kernel_agent.suite.types import Confirmed, Outcome, State, SuiteProblem, Verdict

FILE = "suite.sqlite"
LOGS = "logs"
KIND = Kind(FILE, "suite", "suite", frozenset({"meta", "records"}), "1", "python -m kernel_agent suite run")

Record = SuiteProblem | Outcome | Grant | Verdict | Confirmed
KINDS: Mapping[str, type[Record]] = {
    "problem": SuiteProblem,
    "outcome": Outcome,
    "grant": Grant,
    "verdict": Verdict,
    "confirmed": Confirmed,
}

SCHEMA = (
    META,
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


class Store(Database):
    """A suite's directory."""

    kind = KIND

    @classmethod
    def create(
        cls, directory: Path, plan: Plan, problems: tuple[SuiteProblem, ...], outcomes: tuple[Outcome, ...] = ()
    ) -> Store:
        """Begin a suite in a directory that holds none; `outcomes` are those of problems that cannot be played.

        Raises UsageError where it holds one, or a run.
        """
        if (directory / journal.FILE).exists():
            raise UsageError(f"{directory} holds a run: choose another directory for the suite.")
        store = cls._new(directory)
        with store._closed_by_a_fault(), store._writing():
            for statement in SCHEMA:
                store._rows.execute(statement)
            store._put("format", KIND.format)
            store._put("plan", text_of(plan))
            for problem in problems:
                store._insert(problem)
            for outcome in outcomes:
                store._insert(outcome)
        return store

    def load(self) -> Suite:
        """The suite as far as it is recorded."""
        with self._reading():
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

    def _insert(self, record: Record) -> None:
        kind = next(name for name, its in KINDS.items() if its is type(record))
        problem = record.id if isinstance(record, SuiteProblem) else record.problem
        row = kind, problem, text_of(record)
        self._rows.execute("INSERT INTO records (kind, problem, body) VALUES (?, ?, ?)", row)


def begun(directory: Path) -> bool:
    """Whether a suite has begun in this directory; takes no lock."""
    return database.begun(directory, KIND)


def read(directory: Path) -> Suite:
    """The suite in a directory as far as it is recorded, whoever is playing it now; takes no lock."""
    with database.reading(directory, KIND) as rows:
        return _suite(rows, directory)


def _suite(rows: sqlite3.Connection, directory: Path) -> Suite:
    kept = meta(rows)
    found = rows.execute("SELECT kind, body FROM records ORDER BY number")
    records = [reader(KINDS[kind]).validate_json(body) for kind, body in found if kind in KINDS]
    return Suite(
        directory,
        reader(Plan).validate_json(kept["plan"]),
        tuple(record for record in records if isinstance(record, SuiteProblem)),
        {record.problem: record for record in records if isinstance(record, Outcome)},
        tuple(record for record in records if isinstance(record, Grant)),
        float(kept.get("seconds", "0")),
        {record.problem: record for record in records if isinstance(record, Verdict)},
        {record.problem: record for record in records if isinstance(record, Confirmed)},
    )
