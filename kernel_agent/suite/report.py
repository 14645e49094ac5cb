"""The page of suites as a file: one suite's table, or several side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kernel_agent.delivery import write
from kernel_agent.page import render
from kernel_agent.page.report import REPORT
from kernel_agent.suite.facts import comparison, of_rows
from kernel_agent.suite.rows import rows_of
from kernel_agent.suite.store import FILE, read


def is_suite(directory: Path) -> bool:
    """Whether a suite is kept there."""
    return (directory / FILE).is_file()


def whole(directories: Sequence[Path], ended: bool = False) -> dict[str, Any]:
    """The facts of suites, and what changed from the first to each other. Raises what reading a suite does."""
    suites = [read(directory) for directory in directories]
    rows = [rows_of(suite) for suite in suites]
    return {
        "suites": [of_rows(suite, its, ended) for suite, its in zip(suites, rows, strict=True)],
        "against_first": [comparison(rows[0], its) for its in rows[1:]],
    }


def written(directories: Sequence[Path], file: Path, ended: bool = False) -> Path:
    """Write the page; the path. A problem leads to the page of its run, where there is one, by a relative address.
    `ended` says that the process that holds them plays them no more.

    Raises UsageError or Unavailable where a suite cannot be read or the file not written.
    """
    found = whole(directories, ended)
    for directory, suite in zip(directories, found["suites"], strict=True):
        suite["rows"] = list(_linked(suite["rows"], directory, file))
    write(file, render.suites(found))
    return file


def _linked(rows: Sequence[dict[str, Any]], directory: Path, file: Path) -> Iterator[dict[str, Any]]:
    for row in rows:
        page = directory / row["directory"] / REPORT
        there = os.path.relpath(page.resolve(), file.resolve().parent)
        yield row | {"page": quote(Path(there).as_posix()) if page.is_file() else None}
