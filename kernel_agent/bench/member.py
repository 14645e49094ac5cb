"""One server of a pool: what it measures on, what it has to do, and how it comes back when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.environment import Environment
from kernel_agent.bench.occupancy import Occupancy
from kernel_agent.errors import KernelAgentError
from kernel_agent.interfaces import OnNotice

FIRST_S, LONGEST_S = 1.0, 60.0
"""Seconds between two tries to open a lost server again: they double."""


class Connect(Protocol):
    """Makes a client that is not open yet; once it is lost, it stays so."""

    def __call__(self, occupancy: Occupancy) -> BenchClient: ...


class Member:
    """A server of a pool, by its `name`; `client` is None while it is lost.

    `problems` are those that it has prepared or is preparing, `why` the sentence with which it was lost.
    """

    def __init__(self, name: str, connect: Connect, on_notice: OnNotice, on_change: Callable[[], None]) -> None:
        self.name = name
        self.client: BenchClient | None = None
        self.environment: Environment | None = None
        self.in_flight = 0
        self.problems: set[str] = set()
        self.why = ""
        self.occupancy = Occupancy()
        self._connect, self._notice, self._changed = connect, on_notice, on_change
        self._returning: asyncio.Task[None] | None = None
        self._pause_s = 0.0

    async def open(self) -> None:
        """Raises KernelAgentError where the server does not answer."""
        client = self._connect(self.occupancy)
        await client.__aenter__()
        try:
            self.environment = found = await client.machine()
            gpu = found.gpus[0] if found.gpus else None
            card = gpu.name if gpu else next(iter(found.cards.values()), "")
            self.occupancy.seen_on(card, gpu.uuid if gpu else None, found.host)
        except BaseException:
            await client.__aexit__(None, None, None)
            raise
        self.client = client
        self._changed()

    async def close(self) -> None:
        """End the server, and all tries to open it again."""
        if self._returning:
            self._returning.cancel()
            await asyncio.wait({self._returning})
        if (client := self.client) is not None:
            self.client = None  # its calls are not lost: nobody wants them any more
            await client.__aexit__(None, None, None)

    def card(self, target: str) -> str | None:
        """What judges for a target there; None where nothing does, and before the server has answered once."""
        return self.environment.cards.get(target) if self.environment else None

    @contextmanager
    def at_work(self, problem: str) -> Iterator[BenchClient]:
        """The client for one call on a problem."""
        assert self.client, "only a server that answers is asked"
        self.in_flight += 1
        self.problems.add(problem)
        try:
            yield self.client
        finally:
            self.in_flight -= 1
            self._changed()

    def lose(self, client: BenchClient, why: str) -> None:
        """Of all calls that see their server lost, the first has it opened again."""
        if client is not self.client:
            return
        self.client = None
        self.occupancy.open(False)
        self.problems.clear()
        self._notice(f"The measuring server {self.name} is lost, its calls go to the others: {why}")
        self.return_later(why, client)

    def return_later(self, why: str, gone: BenchClient | None = None) -> None:
        """Try to open the server, again and again, with growing pauses; say when it is there."""
        self.why = why
        self._returning = asyncio.create_task(self._return(gone))

    async def _return(self, gone: BenchClient | None) -> None:
        if gone:
            await gone.__aexit__(None, None, None)
        while self.client is None:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(max(FIRST_S, 2 * self._pause_s), LONGEST_S)
            try:
                await self.open()
            except KernelAgentError as fault:
                self.why = str(fault)
        self._notice(f"The measuring server {self.name} is back.")
