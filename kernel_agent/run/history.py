"""When things of a run were recorded, and what it was charged: what its tree does not say."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kernel_agent.run.budget import Charge
from kernel_agent.run.journal import FILE, reading, run_of
from kernel_agent.run.tree import Run

PAUSE_S = 3600.0
"""Nothing recorded for longer than this is a run that was stopped, and no time of its own."""


@dataclass(frozen=True, slots=True)
class Paid:
    """A charge and when it came, in seconds since 1970; None in journals of earlier versions."""

    charge: Charge
    at: float | None


@dataclass(frozen=True, slots=True)
class History:
    """When each record was written, in seconds since 1970, by its kind and key, in order; all charges; the seconds that
    the run is charged."""

    recorded: Mapping[tuple[str, str], float] = field(default_factory=dict)
    paid: tuple[Paid, ...] = ()
    seconds: float = 0.0

    def since_start(self) -> dict[tuple[str, str], float]:
        """Seconds from the first record to each, without the pauses of a run that was stopped meanwhile."""
        found: dict[tuple[str, str], float] = {}
        passed, before = 0.0, next(iter(self.recorded.values()), 0.0)
        for key, at in self.recorded.items():
            gap = max(0.0, at - before)
            passed, before = passed + (gap if gap <= PAUSE_S else 0.0), at
            found[key] = passed
        return found


def read_whole(directory: Path) -> tuple[Run, History]:
    """The run in a directory and its history, of one moment; takes no lock. Raises what `journal.read` does."""
    with reading(directory) as rows:
        return run_of(rows, directory), _history(rows)


def stamp(directory: Path, file: str = FILE) -> tuple[int, ...]:
    """What changes when something is recorded in a directory: sizes and times of the journal's files, or another's."""
    found: list[int] = []
    for name in (file, f"{file}-wal"):
        try:
            state = (directory / name).stat()
            found += (state.st_size, state.st_mtime_ns)
        except OSError:
            found += (0, 0)
    return tuple(found)


def _history(rows: sqlite3.Connection) -> History:
    seconds = rows.execute("SELECT value FROM meta WHERE name = 'seconds'").fetchone()
    recorded = rows.execute("SELECT kind, key, at FROM records ORDER BY number")
    return History(
        {(str(kind), str(key)): _unix(at) for kind, key, at in recorded},
        tuple(_paid(rows)),
        float(json.loads(seconds[0])) if seconds else 0.0,
    )


def _paid(rows: sqlite3.Connection) -> list[Paid]:
    columns = {str(row[1]) for row in rows.execute("PRAGMA table_info(charges)")}
    if not columns:
        return []
    at = "at" if "at" in columns else "NULL"
    names = "stage, model, prompt_tokens, reply_tokens, dollars, seconds"
    found = rows.execute(f"SELECT {names}, {at} FROM charges ORDER BY number")
    return [Paid(Charge(*row), None if when is None else _unix(when)) for *row, when in found]


def _unix(at: str) -> float:
    """SQLite's CURRENT_TIMESTAMP, which is UTC and of whole seconds."""
    return datetime.strptime(at, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
