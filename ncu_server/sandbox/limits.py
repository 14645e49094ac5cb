"""Memory and process counts of a child and all that it started, and what it wrote: the watchdog's eyes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PERIOD_S = 0.2
SHARE_OF_MEMORY = 0.8
CAP_VARIABLE = "NCU_SERVER_MEMORY_GIB"
MAX_PROCESSES = 512
MAX_FILES = 20_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_cap() -> int:
    """How many bytes a child may use: NCU_SERVER_MEMORY_GIB, else 80 % of the machine's or the container's memory."""
    if given := os.environ.get(CAP_VARIABLE):
        return int(float(given) * (1 << 30))
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        total = min(total, int(text))
    return int(total * SHARE_OF_MEMORY)


def family(pid: int) -> list[int]:
    """`pid` and its descendants; only `pid` where the kernel does not list children."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def children(pid: int) -> list[int]:
    """The children of any thread of `pid`."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(p) for p in (task / "children").read_text().split()]
    except OSError:
        pass
    return found


def excess(pid: int, cap: int) -> str | None:
    """What the child used too much of, in words; None while it is within bounds."""
    members = family(pid)
    if len(members) > MAX_PROCESSES:
        return f"started more than {MAX_PROCESSES} processes"
    if _resident(pid) + sum(_resident(p, own=True) for p in members[1:]) > cap:
        return f"used more than {cap / (1 << 30):.1f} GiB of memory"
    return None


def overfull(places: Iterable[Path], cap: int) -> str | None:
    """What too much lies in these directories, in words; None while it is within bounds."""
    size = files = 0
    pending = list(places)
    while pending:
        for entry in _entries(pending.pop()):
            files += 1
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            size += _disk(entry)
            if files > MAX_FILES:
                return f"made more than {MAX_FILES} files"
            if size > cap:
                return f"wrote more than {cap / (1 << 30):.1f} GiB to the disk"
    return None


def _entries(place: Path) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(place) as found:
            return list(found)
    except OSError:  # gone, or closed by its owner
        return ()


def _disk(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0


def _resident(pid: int, own: bool = False) -> int:
    """Bytes in memory; `own` leaves out mapped files and shared memory, which its parent has mapped too."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared if own else resident) * PAGE


def computing_ns(pid: int) -> int:
    """How long the main thread of `pid` has computed, in nanoseconds; 0 where the system does not tell. Whatever the
    process says of its own time, its calls took at least this long."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
