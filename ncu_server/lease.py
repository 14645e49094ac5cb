"""One lease a device: timing has it alone; work that would disturb timing shares it. First come, first served."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

Report = Callable[[str], Awaitable[None]]


class Lease:
    """Shared by at most `width` holders at a time, or held by one alone."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._sharing = 0
        self._alone = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def alone(self, report: Report | None = None) -> AsyncIterator[None]:
        """The device for one holder."""
        async with self._held(True, report):
            yield

    @contextlib.asynccontextmanager
    async def shared(self, report: Report | None = None) -> AsyncIterator[None]:
        """The device together with other sharers."""
        async with self._held(False, report):
            yield

    @contextlib.asynccontextmanager
    async def _held(self, alone: bool, report: Report | None) -> AsyncIterator[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((alone, turn))
        self._admit()
        if not turn.done() and report is not None:
            await report(f"queued behind {len(self._queue) - 1 + self._sharing + self._alone}")
        try:
            await turn
        except asyncio.CancelledError:
            self._withdraw(alone, turn)
            raise
        try:
            yield
        finally:
            self._release(alone)

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
        while self._queue and not self._alone:
            alone, turn = self._queue[0]
            if self._sharing and (alone or self._sharing >= self._width):
                return
            self._queue.popleft()
            if turn.cancelled():
                continue
            self._alone, self._sharing = alone, self._sharing + (not alone)
            turn.set_result(None)
