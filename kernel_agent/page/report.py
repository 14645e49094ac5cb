"""The page of a run as a file in its directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_agent.delivery import write
from kernel_agent.errors import UsageError
from kernel_agent.page import render
from kernel_agent.page.facts import facts
from kernel_agent.page.seen import runs_below, see
from kernel_agent.page.texts import Lookup, from_library, texts
from kernel_agent.run.journal import FILE

REPORT = "report.html"


def written(directory: Path, lookup: Lookup = from_library, file: Path | None = None, ended: bool = False) -> Path:
    """Write a run's page, by default to report.html in its directory; the path. `ended` says that the run is over.

    Raises UsageError or Unavailable where the journal cannot be read or the file not written.
    """
    seen = see(directory)
    seen = replace(seen, state="finished") if ended else seen
    file = file or directory / REPORT
    write(file, render.page(facts(seen), texts(seen.run, lookup)))
    return file


def compared(directories: Sequence[Path], file: Path) -> Path:
    """Write the page of several runs; the path. Raises as `written` does."""
    write(file, render.comparison(whole(directories)))
    return file


def whole(directories: Sequence[Path]) -> list[dict[str, Any]]:
    """The facts of each of several runs."""
    return [facts(see(directory)) for directory in directories]


def meant(places: Sequence[Path]) -> list[Path]:
    """The runs that somebody names: of a folder that is none, all below it. Raises UsageError where there is none."""
    found: list[Path] = []
    for place in places:
        below = [place] if (place / FILE).is_file() else list(runs_below(place))
        if not below:
            raise UsageError(f"There is no run in {place} and none below it.")
        found += below
    return list(dict.fromkeys(found))
