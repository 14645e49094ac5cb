"""Where the server writes: what outlives it, and what compilers work in.

Neither torch nor tvm_ffi nor Inductor quotes every path that it hands to ninja, a shell or a compiler, so compilers get
plain paths alone: a folder of their own where the cache's path is not plain, and other names for what is installed
below a path that is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ncu_server.errors import Code, Refusal

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
"""What has to be on the path of whoever imports `ncu_server`."""

PLAIN = re.compile(r"[A-Za-z0-9_./+=@-]{1,1024}")
MIN_ROOM = 512 << 20
LOCK = "lock"
UNLOCKED_S = 3600.0
FIX = "set XDG_CACHE_HOME to a folder that can be written"
ALIASES = "NCU_SERVER_ALIASES"
"""The variable that names a folder of links, each a plain name for a folder whose path is not plain."""


@dataclass(frozen=True, slots=True)
class Places:
    """`cache` outlives the server, compilers work below `building`; each `why` says what was passed over for it."""

    cache: Path
    building: Path
    why_cache: str | None = None
    why_building: str | None = None


def chosen(wanted: Path | None = None) -> Places:
    """The first folders that can be used: `wanted` or else the user's cache, then folders of the user's own where
    temporary files go.

    Raises Refusal NO_ROOM, which names each folder and what is wrong with it, where there is none.
    """
    faults: list[str] = []
    first = wanted or _cache(faults)
    cache, why_cache = _first([first, *_temporary()], faults, building=False)
    building, why_building = _first(list(dict.fromkeys([cache, *_temporary()])), [], building=True)
    return Places(cache, building, why_cache, why_building)


def plain(path: str | Path) -> bool:
    """Whether every compiler and shell can bear the path, links in it followed."""
    return PLAIN.fullmatch(os.path.realpath(path)) is not None


def short_of_room(places: Places) -> Path | None:
    """The folder with too little room for a build, if there is one."""
    return next((place for place in (places.building, places.cache) if not _room(place)), None)


def workplace(building: Path) -> tuple[Path, IO[str]]:
    """A new directory, and the locked file that says that it is in use for as long as it is open."""
    made = Path(tempfile.mkdtemp(prefix=f"work-{os.getpid()}-", dir=building))
    held = (made / LOCK).open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    return made, held


def left_behind(building: Path) -> Iterator[Path]:
    """The work directories that no server holds, as a killed one leaves them. Numbers of processes would not tell:
    containers that share a folder have them twice."""
    for left in building.glob("work-*-*"):
        try:
            lock = os.open(left / LOCK, os.O_RDWR)
        except FileNotFoundError:  # not locked yet, or of an older version
            with contextlib.suppress(OSError):
                if left.stat().st_mtime < time.time() - UNLOCKED_S:
                    yield left
            continue
        except OSError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield left
        except OSError:
            continue
        finally:
            os.close(lock)


def aliased(folder: Path, roots: Iterable[str]) -> dict[str, str]:
    """Make links in `folder` to those of `roots` whose path is not plain; see aliases."""
    folder.mkdir(exist_ok=True)
    odd = [root for root in roots if not PLAIN.fullmatch(root) or not plain(root)]
    for root in {*odd, *map(os.path.realpath, odd)}:
        with contextlib.suppress(FileExistsError):
            (folder / hashlib.sha256(os.fsencode(root)).hexdigest()[:12]).symlink_to(root)
    return aliases(folder)


def aliases(folder: str | Path) -> dict[str, str]:
    """The plain names by the path that each stands for, the longest path first."""
    found = {str(link.readlink()): str(link) for link in Path(folder).iterdir()}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def renamed(path: str, names: Mapping[str, str]) -> str:
    """The path, by a plain name where it lies in a folder that has one."""
    for root, name in names.items():
        if path == root or path.startswith(f"{root}/"):
            return name + path[len(root) :]
    return path


def printable(path: object) -> str:
    """As text that UTF-8 can hold, which a path need not be."""
    return str(path).encode(errors="replace").decode()


def owner(uid: int) -> str:
    """A user in words: by name, else by number."""
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"another user (uid {uid})"


def _cache(faults: list[str]) -> Path | None:
    """$XDG_CACHE_HOME/kernel_agent/ncu_server, ~/.cache where the variable is not set; None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base).absolute() / "kernel_agent" / "ncu_server"
    with contextlib.suppress(RuntimeError):  # no HOME, and the user is not in the password file
        home = Path.home()
        if home.is_absolute():
            return home / ".cache" / "kernel_agent" / "ncu_server"
    faults.append("the user has no home")
    return None


def _temporary() -> list[Path]:
    bases = [os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"]
    return list(dict.fromkeys(Path(base).absolute() / f"kernel_agent-{os.geteuid()}" for base in bases))


def _first(places: Sequence[Path | None], faults: list[str], building: bool) -> tuple[Path, str | None]:
    """The first place that can be used, and why the first one of all cannot."""
    for place in filter(None, places):
        fault = _fault(place, place in _temporary()) or (_unfit(place) if building else None)
        if fault is None:
            return place, printable(faults[0]) if faults else None
        faults.append(f"{place} {fault}")
    what = "be built in" if building else "keep what is measured"
    raise Refusal(Code.NO_ROOM, f"no folder can {what}: {printable('; '.join(faults))}", FIX)


def _fault(place: Path, private: bool) -> str | None:
    """Why nothing can be written below the folder, which is made where it is not there."""
    try:
        place.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        found = place.lstat() if private else place.stat()
        if found.st_uid != os.geteuid() and (private or os.geteuid() != 0):
            return f"belongs to {owner(found.st_uid)}"
        if private and (not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022):
            return "can be written by other users"
        for inner in place.iterdir():
            if inner.is_dir() and not inner.name.startswith("work-") and not os.access(inner, os.W_OK | os.X_OK):
                return f"holds {inner.name}, which belongs to {owner(inner.stat().st_uid)}"
        Path(tempfile.mkdtemp(prefix="work-", dir=place)).rmdir()
    except OSError as fault:
        return f"cannot be written ({fault.strerror or fault})"
    return None


def _unfit(place: Path) -> str | None:
    """Why compilers cannot work below the folder."""
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        return "lies on a file system from which no program may run (noexec)"
    path = os.path.realpath(place)
    if plain(path):
        return None
    odd = next((c for c in path if not PLAIN.fullmatch(c)), None)
    return f"has {odd!r} in its path, which compilers do not bear" if odd else "has too long a path"


def _room(place: Path) -> bool:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize >= MIN_ROOM and (disk.f_favail > 0 or disk.f_files == 0)
