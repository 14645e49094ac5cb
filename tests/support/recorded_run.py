"""Real runs as they were recorded: journals as SQL in tests/support/recorded.

python -m tests.support.recorded_run keep DIRECTORY NAME    records one
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from tests.support.paths import ROOT

RECORDED = ROOT / "tests" / "support" / "recorded"


SPAN = (
    "(SELECT (max(CASE WHEN number <= ? THEN julianday(at) END) - min(julianday(at)))"
    " / (max(julianday(at)) - min(julianday(at))) FROM records)"
)
"""The share of a run's time that had passed by a record."""


def restored(name: str, directory: Path, count: int | None = None) -> Path:
    """The recorded run in a new directory, its journal alone; up to its `count`-th record."""
    directory.mkdir(parents=True)
    with closing(sqlite3.connect(directory / "journal.sqlite")) as rows:
        rows.executescript(gzip.decompress((RECORDED / f"{name}.sql.gz").read_bytes()).decode())
        if count is not None:
            rows.execute(f"UPDATE meta SET value = value * {SPAN} WHERE name = 'seconds'", (count,))
            rows.execute("DELETE FROM records WHERE number > ?", (count,))
            rows.commit()
    return directory


def keep(directory: Path, name: str) -> None:
    """Record the run of a directory."""
    with closing(sqlite3.connect(directory / "journal.sqlite")) as rows:
        text = "\n".join(rows.iterdump())
    (RECORDED / f"{name}.sql.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    keep(Path(sys.argv[2]), sys.argv[3])
