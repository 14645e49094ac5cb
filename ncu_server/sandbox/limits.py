"""Memory and process counts of a child and all that it started, and what it wrote: the watchdog's eyes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PERIOD_S = 0.2
SHARE_OF_MEMORY = 0.8
CAP_VARIABLE = "NCU_SERVER_MEMORY_GIB"
MAX_PROCESSES = 512
MAX_FILES = 20_000
PAGE = os.sysconf("SC_PAGE_SIZE")
GIB = 1 << 30
GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Excess:
    """What a child used too much of, in words; `memory_bytes` is what it had where that was memory."""

    words: str
    memory_bytes: int | None = None


def memory_cap() -> int:
    """How many bytes a child may use: NCU_SERVER_MEMORY_GIB, else 80 % of the machine's or the container's memory."""
    if given := os.environ.get(CAP_VARIABLE):
        return int(float(given) * GIB)
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    bounds = (text.strip() for text in _group_files("memory.max", "memory.limit_in_bytes"))
    return int(min([total, *(int(bound) for bound in bounds if bound.isdigit())]) * SHARE_OF_MEMORY)


def bound() -> str:
    """The cap in words."""
    return f"a process may have {memory_cap() / GIB:.1f} GiB of the host's memory"


def kernel_kills() -> int:
    """How many processes the kernel has ended for want of memory: of this one's control group, else of the machine
    (memory.events, memory.oom_control and vmstat of the kernel's documentation count alike); 0 where none tells."""
    for text in (*_group_files("memory.events", "memory.oom_control"), *_readable(Path("/proc/vmstat"))):
        for row in text.splitlines():
            match row.split():
                case ["oom_kill", count]:
                    return int(count)
    return 0


def _readable(path: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield path.read_text()


def _group_files(new: str, old: str) -> Iterator[str]:
    """The texts of those files of this process's control group and of those above it that can be read, from the nearest
    on, by their names in either version. A container may see its own group as the root."""
    for row in "".join(_readable(Path("/proc/self/cgroup"))).splitlines():
        _, controllers, path = row.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (GROUPS / "memory", old) if controllers else (GROUPS, new)
        own = root / path.strip("/")
        for group in (own, *(above for above in own.parents if above.is_relative_to(root))):
            yield from _readable(group / name)


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had; 0 where it has gone."""
    for row in "".join(_readable(Path(f"/proc/{pid}/status"))).splitlines():
        match row.split():
            case ["VmHWM:", size, "kB"]:
                return int(size) << 10
    return 0


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


def excess(pid: int, cap: int) -> Excess | None:
    """What the child and all that it started use too much of; None while they are within bounds."""
    members = family(pid)
    if len(members) > MAX_PROCESSES:
        return Excess(f"started more than {MAX_PROCESSES} processes")
    taken = _resident(pid) + sum(_resident(p, own=True) for p in members[1:])
    if taken > cap:
        return Excess(f"used more than {cap / GIB:.1f} GiB of memory", taken)
    return None


def overfull(places: Iterable[Path], cap: int) -> Excess | None:
    """What too much lies in these directories; None while it is within bounds."""
    size = files = 0
    pending = list(places)
    while pending:
        for entry in _entries(pending.pop()):
            files += 1
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            size += _disk(entry)
            if files > MAX_FILES:
                return Excess(f"made more than {MAX_FILES} files")
            if size > cap:
                return Excess(f"wrote more than {cap / GIB:.1f} GiB to the disk")
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
