"""Prepared problems, and what the judge works with beside them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from ncu_server.compiler.builds import Builds
from ncu_server.errors import Refusal
from ncu_server.judge.preparation import prepare
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.room import NoRoom, holds_gigabytes, others_hold, patiently
from ncu_server.judge.trusted import advised, exhausted
from ncu_server.machine.device import Device
from ncu_server.machine.machine import Machine
from ncu_server.machine.tickets import Progress, unheard
from ncu_server.places import Places

KEPT_PROBLEMS = 2


class Problems:
    """Remembers the problems that were prepared last: drawing inputs and computing what is expected takes seconds."""

    def __init__(self) -> None:
        self._kept: dict[str, PreparedProblem] = {}
        self._preparing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def prepared(
        self, problem: str, device: Device, fresh: bool = False, progress: Progress = unheard
    ) -> AsyncIterator[PreparedProblem]:
        """The prepared problem; `fresh` makes one with new secrets and new processes that ends with its use.

        `progress` hears of waits for the device and for another problem that is prepared.
        """
        prepared = await patiently(lambda: self._taken(problem, device, fresh, progress))
        try:
            yield prepared
        finally:
            prepared.users -= 1
            if not prepared.users and self._kept.get(problem_id(problem, device.target.name)) is not prepared:
                prepared.close()

    async def _taken(self, problem: str, device: Device, fresh: bool, progress: Progress) -> PreparedProblem:
        """The prepared problem, with one user more."""
        key = problem_id(problem, device.target.name)
        if self._preparing.locked():
            await progress("queued behind 1", ahead=1)
        async with self._preparing:
            if (known := self._kept.get(key)) and known.broken:
                self._kept.pop(key)
                if not known.users:  # else its last user closes it: who waits with it is to learn that it is lost
                    known.close()
            prepared = None if fresh else self._kept.get(key)
            if prepared is None:
                await self.make_room(device)
                prepared = await _prepared(problem, device, progress)
                if not fresh:
                    self._keep(key, prepared)
            prepared.users += 1
            return prepared

    async def make_room(self, device: Device) -> None:
        """Let go of problems that nobody uses and that hold gigabytes, parameters too; wait until these are free."""
        if idle := [key for key, kept in self._kept.items() if not kept.users and holds_gigabytes(kept)]:
            for key in idle:
                self._kept.pop(key).close()
            await device.fork_server.cleared()

    def _keep(self, key: str, prepared: PreparedProblem) -> None:
        self._kept[key] = prepared
        idle = [k for k, s in self._kept.items() if not s.users and k != key]
        for old in idle[: max(0, len(self._kept) - KEPT_PROBLEMS)]:
            self._kept.pop(old).close()

    def close(self) -> None:
        """End the processes of all problems."""
        for prepared in self._kept.values():
            prepared.close()


async def _prepared(problem: str, device: Device, progress: Progress) -> PreparedProblem:
    prepared = PreparedProblem(device, problem)
    try:
        async with device.lease.alone(progress):
            await progress("preparing: inputs, expected values")
            try:
                await prepare(prepared)
            except Refusal as refusal:
                await _let_go(prepared)
                raise await _waiting(prepared, refusal) from refusal.__cause__
            await prepared.clear()
    except Refusal as refusal:
        prepared.close()
        raise advised(refusal, problem, device.target.hardware.is_host) from refusal.__cause__
    except BaseException:
        prepared.close()
        raise
    return prepared


async def _let_go(prepared: PreparedProblem) -> None:
    for input_set in prepared.input_sets:
        input_set.close()


async def _waiting(prepared: PreparedProblem, refusal: Refusal) -> Refusal:
    """The refusal, as one that waits where memory ran out that others hold."""
    if not exhausted(refusal.__cause__):
        return refusal
    with contextlib.suppress(Refusal):
        return NoRoom(refusal.reason, await others_hold(prepared))
    return refusal


def problem_id(problem: str, target: str) -> str:
    return hashlib.sha256(f"{target}\0{problem}".encode()).hexdigest()[:12]


class Workshop:
    """What tools work with: the machine, what was built on it, and the problems that are prepared there.

    Raises Refusal NO_ROOM where no folder can be used.
    """

    def __init__(self, where: Places | Path | None = None) -> None:
        self.machine = Machine(where)
        self.builds = Builds(self.machine.work)
        self.problems = Problems()

    def close(self) -> None:
        """End all children and remove the work directory."""
        self.problems.close()
        self.machine.close()
