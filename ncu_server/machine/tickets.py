"""One queue a device for all servers of a machine, whoever runs them.

A queue is a directory of tickets. A ticket is a file that its holder keeps locked (flock) for as long as it lives, so
that the kernel gives back what a killed server held. Tickets are numbered under a lock of the directory; whoever holds
one looks at those before it until its turn has come. The directory is open to every user, as /tmp is.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

from ncu_server import places

ROOT_VARIABLE = "NCU_SERVER_LEASES"
ROOT = "/tmp/ncu_server-leases"  # not TMPDIR, which differs between users
PERIOD_S = 0.02
TICKET = re.compile(r"(\d+)-(alone|shared)")


class Progress(Protocol):
    """What whoever waits for a result hears: words, and while the call waits its turn, how many are ahead of it."""

    async def __call__(self, message: str, *, ahead: int | None = None) -> None: ...


async def unheard(message: str, *, ahead: int | None = None) -> None:
    """The progress of those who want to hear of none."""


class Tickets:
    """The queue of one device. `fault` says why there is none here, and so why other servers are not waited for."""

    def __init__(self, device: str) -> None:
        self.place = Path(os.environ.get(ROOT_VARIABLE) or ROOT).absolute() / re.sub(r"[^\w-]", "_", device)
        self.fault: str | None = None

    def unusable(self) -> str | None:
        """Why the queue cannot be used, found without waiting in it."""
        try:
            with _opened(self.place) as folder:
                allowed = os.access(self.place, os.R_OK | os.W_OK | os.X_OK)
                return None if allowed else f"only {places.owner(os.fstat(folder).st_uid)} may write there"
        except OSError as fault:
            return fault.strerror or str(fault)

    @contextlib.asynccontextmanager
    async def hold(self, alone: bool, progress: Progress | None = None) -> AsyncIterator[None]:
        """Wait until no ticket before this one is in the way: any for `alone`, else those of holders that are alone.

        Where the queue cannot be used nobody is waited for, and `fault` says so.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(_opened(self.place))
                number = await _drawn(folder, alone, stack)
                self.fault = None
            except OSError as fault:
                self.fault = f"{self.place} cannot be used: {fault.strerror or fault}"
            else:
                await _turn(folder, number, alone, progress)
            yield


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[int]:
    """A descriptor of the queue's directory, which is made where there is none. Links are not followed."""
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (place.parent, place):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            path.chmod(stat.S_ISVTX | 0o777)
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield folder
    finally:
        os.close(folder)


async def _drawn(folder: int, alone: bool, stack: contextlib.ExitStack) -> int:
    """Draw the next ticket; `stack` gives it back. A number is never drawn twice."""
    while not _locked(folder, fcntl.LOCK_EX):
        await asyncio.sleep(PERIOD_S)
    try:
        number = max([time.monotonic_ns(), *(n + 1 for n, _, _ in _tickets(folder))])
        name = f"{number}-{'alone' if alone else 'shared'}"
        ticket = os.open(name, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
        stack.callback(os.close, ticket)
        stack.callback(_gone, name, folder)
        os.fchmod(ticket, 0o644)
        fcntl.flock(ticket, fcntl.LOCK_EX)
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)
    return number


async def _turn(folder: int, number: int, alone: bool, progress: Progress | None) -> None:
    reported = 0
    while ahead := len(list(_ahead(folder, number, alone))):
        if progress is not None and ahead != reported:
            reported = ahead
            await progress(f"queued behind {ahead} of other servers", ahead=ahead)
        await asyncio.sleep(PERIOD_S)


def _ahead(folder: int, number: int, alone: bool) -> Iterator[str]:
    """The tickets in the way that somebody still holds; those that nobody does are removed."""
    for other, kind, name in _tickets(folder):
        if other < number and (alone or kind == "alone"):
            if _held(folder, name):
                yield name
            else:
                _gone(name, folder)


def _held(folder: int, name: str) -> bool:
    try:
        ticket = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False
    try:
        return not _locked(ticket, fcntl.LOCK_SH)
    finally:
        os.close(ticket)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tickets(folder: int) -> Iterator[tuple[int, str, str]]:
    for name in os.listdir(folder):
        if found := TICKET.fullmatch(name):
            yield int(found[1]), found[2], name


def _gone(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):  # another user's, in a sticky directory: it stays, and nobody waits for it
        os.unlink(name, dir_fd=folder)
