"""Where a user's index and experience stand when no folder is named."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rag.errors import LibraryError


def cache() -> tuple[Path, str | None]:
    """`$XDG_CACHE_HOME`, or `~/.cache`; where it cannot be written, a folder of the user's own for temporary files, and
    what is wrong with the other.

    Raises LibraryError, which names both, where neither can be used.
    """
    try:
        wanted = _base("XDG_CACHE_HOME", ".cache")
    except LibraryError as error:
        return _temporary(str(error)), str(error)
    if can_be_written(wanted / "kernel_agent" / "rag"):
        return wanted, None
    fault = f"{wanted} cannot be written"
    return _temporary(fault), fault


def data() -> Path:
    """`$XDG_DATA_HOME`, or `~/.local/share`. Raises LibraryError where the user has no home."""
    return _base("XDG_DATA_HOME", ".local/share")


@contextlib.contextmanager
def some_home() -> Iterator[None]:
    """Inside, there is a home for who asks, where the user has none."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = tempfile.gettempdir()
        try:
            yield
        finally:
            del os.environ["HOME"]
    else:
        yield


def can_be_written(folder: Path) -> bool:
    """Whether a file or folder may be written, or made where it is not there yet."""
    try:
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not there.is_dir():
            return there == folder and os.access(there, os.W_OK)
        with tempfile.TemporaryDirectory(dir=there):  # what the permissions say is not all: /proc, a full disk
            return True
    except OSError:  # above it is no folder, or its name is too long
        return False


def _base(variable: str, inside: str) -> Path:
    if named := os.environ.get(variable):
        return Path(named).absolute()
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if not home.is_absolute():
        raise LibraryError(f"there is no home directory: set HOME or {variable}")
    return home / inside


def _temporary(fault: str) -> Path:
    own = Path(tempfile.gettempdir()).absolute() / f"kernel_agent-{os.geteuid()}"
    try:
        own.mkdir(0o700, exist_ok=True)
        found = own.lstat()
    except OSError as error:
        raise LibraryError(f"{fault}, and {own} cannot be made ({error.strerror}): set XDG_CACHE_HOME") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise LibraryError(f"{fault}, and {own} is in the hands of other users: set XDG_CACHE_HOME")
    return own
