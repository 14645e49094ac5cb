"""One lease a device: timing has it alone; work that would disturb timing shares it. First come, first served.

Inside a server turns are given here; with the other servers of the machine a holder queues through `Tickets`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from ncu_server.machine.activity import during
from ncu_server.machine.tickets import Progress, Tickets

__all__ = ["Lease", "Progress"]


class Lease:
    """Shared by at most `width` holders at a time, or held by one alone; without tickets, in this server only."""

    def __init__(self, width: int, tickets: Tickets | None = None) -> None:
        self._width = width
        self._tickets = tickets
        self._sharing = 0
        self._alone = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()
        self._moved = asyncio.Event()

    @contextlib.asynccontextmanager
    async def alone(self, progress: Progress | None = None) -> AsyncIterator[None]:
        """The device for one holder."""
        async with self._held(True, progress):
            yield

    @contextlib.asynccontextmanager
    async def shared(self, progress: Progress | None = None) -> AsyncIterator[None]:
        """The device together with other sharers."""
        async with self._held(False, progress):
            yield

    @contextlib.asynccontextmanager
    async def _held(self, alone: bool, progress: Progress | None) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            with during("waiting"):
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._queue.append((alone, turn))
                self._admit()
                try:
                    await self._wait(turn, progress)
                except BaseException:
                    self._withdraw(alone, turn)
                    raise
                stack.callback(self._release, alone)
                if self._tickets:
                    await stack.enter_async_context(self._tickets.hold(alone, progress))
            if alone and self._tickets:  # without tickets it is no device that is held
                stack.enter_context(during("device"))
            yield

    async def _wait(self, turn: asyncio.Future[None], progress: Progress | None) -> None:
        """Until it is our turn; `progress` hears how many are ahead, at first and whenever that changes."""
        reported = None
        while not turn.done() and progress is not None:
            if (ahead := self._ahead(turn)) != reported:
                reported = ahead
                await progress(f"queued behind {ahead}", ahead=ahead)
                continue
            moved: asyncio.Future[Any] = asyncio.ensure_future(self._moved.wait())
            either: set[asyncio.Future[Any]] = {turn, moved}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()
        await turn

    def _ahead(self, turn: asyncio.Future[None]) -> int:
        before = [waiting for _, waiting in self._queue]
        return before.index(turn) + self._sharing + self._alone

    @property
    def notes(self) -> list[str]:
        """What a result has to say of who keeps away from the device."""
        fault = self._tickets.fault if self._tickets else None
        return [f"other servers on this machine were not waited for: {fault}"] if fault else []

    def _withdraw(self, alone: bool, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self._release(alone)
        else:
            self._queue = deque(e for e in self._queue if e[1] is not turn)
            self._admit()

    def _release(self, alone: bool) -> None:
        if alone:
            self._alone = False
        else:
            self._sharing -= 1
        self._admit()

    def _admit(self) -> None:
        self._moved.set()
        self._moved.clear()
        while self._queue and not self._alone:
            alone, turn = self._queue[0]
            if self._sharing and (alone or self._sharing >= self._width):
                return
            self._queue.popleft()
            if turn.cancelled():
                continue
            self._alone, self._sharing = alone, self._sharing + (not alone)
            turn.set_result(None)
