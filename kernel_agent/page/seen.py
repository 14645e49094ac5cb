"""A run's directory as whoever looks at it finds it now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel_agent.delivery import BEST
from kernel_agent.errors import UsageError
from kernel_agent.run import lock
from kernel_agent.run.history import History, read_whole
from kernel_agent.run.journal import FILE
from kernel_agent.run.tree import Run

DEEP = 4
"""Levels below a folder on which its runs are looked for: that of a run in a suite of levels is the fourth."""

State = Literal["running", "finished", "stopped"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A run, when things of it came, and whether it goes on; `retrieval` is how passages were found, where it is known.

    A run is stopped where it has delivered nothing and no process here holds its directory.
    """

    directory: Path
    run: Run
    history: History
    state: State
    retrieval: str | None = None


def see(directory: Path) -> Seen:
    """What is there now; takes no lock. Raises UsageError or Unavailable where the journal cannot be read."""
    run, history = read_whole(directory)
    return Seen(directory, run, history, state(directory), _retrieval(directory))


def state(directory: Path) -> State:
    """Whether a run goes on, has delivered, or was stopped before it did."""
    if lock.holder(directory) is not None:
        return "running"
    return "finished" if (directory / BEST).is_file() else "stopped"


def runs_below(directory: Path) -> Iterator[Path]:
    """The run directories in a folder and below it, the last changed first. Raises UsageError where it is no folder."""
    return below(directory, FILE)


def below(directory: Path, file: str) -> Iterator[Path]:
    """The folders with such a file, this one and those below it, the last changed first.

    Raises UsageError where it is no folder.
    """
    if not directory.is_dir():
        raise UsageError(f"There is no folder {directory}.")
    found = [path.parent for depth in range(DEEP + 1) for path in directory.glob("*/" * depth + file)]
    return iter(sorted(found, key=lambda path: (path / file).stat().st_mtime_ns, reverse=True))


def _retrieval(directory: Path) -> str | None:
    try:
        found = json.loads((directory / "results.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    said = found.get("retrieval") if isinstance(found, dict) else None
    return said if isinstance(said, str) else None
