"""The lock of a run directory: who holds it, and how its holder is asked to stop."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from kernel_agent.errors import Unavailable, UsageError

FILE = "lock"


def take(directory: Path) -> TextIO:
    """Lock the directory until the file is closed, and write this process's id there.

    Raises OSError where it cannot be written, UsageError where a live process holds it.
    """
    file = (directory / FILE).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(f"{directory} is in use by another process: wait for it, or take another directory.") from None
    with suppress(OSError):  # a full disk: nobody can stop this run from outside, and it goes on
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    return file


def holder(directory: Path) -> int | None:
    """The process that holds the lock now; None where none on this machine does that can be seen."""
    try:
        process = int((directory / FILE).read_text("ascii"))
    except (OSError, ValueError):
        return None
    return process if _holds(process, directory / FILE) else None


def stop(directory: Path) -> None:
    """Ask the process that holds the lock to end the run, as SIGTERM does. What is recorded stays.

    Raises UsageError where no run goes on there, Unavailable where its process cannot be asked.
    """
    process = holder(directory)
    if process is None:
        raise UsageError(f"No run goes on in {directory}.")
    try:
        handle = os.pidfd_open(process)
    except OSError:
        raise UsageError(f"No run goes on in {directory}.") from None
    try:
        if not _holds(process, directory / FILE):  # the id may be another process's by now
            raise UsageError(f"No run goes on in {directory}.")
        if not _catches(process, signal.SIGTERM):
            raise Unavailable(
                f"The program that runs {directory} (process {process}) does not end on SIGTERM: stop it."
            )
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except PermissionError:
        raise Unavailable(f"The run in {directory} is another user's (process {process}): ask them.") from None
    finally:
        os.close(handle)


def _holds(process: int, file: Path) -> bool:
    """Whether one of the process's descriptors has the lock on this very file."""
    try:
        wanted = file.stat()
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # closed in between
                if os.path.samestat(descriptor.stat(), wanted) and _locked(process, descriptor.name):
                    return True
    except OSError:
        return False
    return False


def _locked(process: int, descriptor: str) -> bool:
    rows = Path(f"/proc/{process}/fdinfo/{descriptor}").read_text().splitlines()
    return any(row.split()[:1] == ["lock:"] and "FLOCK" in row.split() for row in rows)


def _catches(process: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for a signal, by the mask that Linux shows."""
    rows = Path(f"/proc/{process}/status").read_text().splitlines()
    caught = next((int(row.split()[1], 16) for row in rows if row.startswith("SigCgt:")), 0)
    return bool(caught >> (number - 1) & 1)
