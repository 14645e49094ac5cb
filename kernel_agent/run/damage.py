"""A journal that cannot be read, in one sentence: what stands in it is at fault, or where it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_agent.errors import Unavailable, UsageError

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
"""Faults of where a journal is, and not of what stands in it."""


@contextmanager
def understood(file: Path) -> Iterator[None]:
    """Reading a journal; whatever is wrong with what stands in it, or with the disk it is on, becomes one sentence."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in PLACE:
            raise _damaged(file, error) from None
        raise Unavailable(
            f"The journal in {file.parent} cannot be read ({error}); what it holds is safe: "
            f"see to the disk, which may be full, then resume {file.parent}."
        ) from None
    except (sqlite3.DatabaseError, KeyError, TypeError, ValueError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> UsageError:
    why = next(iter(str(error).splitlines()), type(error).__name__)
    return UsageError(f"{file} is damaged, or not a journal of a run ({why}): start a new run.")
