"""Prepared problems, and what the judge works with beside them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from ncu_server.build.builds import Builds
from ncu_server.errors import Refusal
from ncu_server.judge.preparation import prepare
from ncu_server.judge.problem import Session
from ncu_server.judge.trusted import advised
from ncu_server.machine.device import Device
from ncu_server.machine.machine import Machine
from ncu_server.places import Places

KEPT_SESSIONS = 2


class Problems:
    """Remembers the problems that were prepared last: drawing inputs and computing what is expected takes seconds."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._preparing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def prepared(self, problem: str, device: Device, fresh: bool = False) -> AsyncIterator[Session]:
        """The prepared problem; `fresh` makes one with new secrets and new processes that ends with its use."""
        key = problem_id(problem, device.target.name)
        async with self._preparing:
            if (known := self._sessions.get(key)) and known.broken:
                self._sessions.pop(key)
                if not known.users:  # else its last user closes it: who waits with it is to learn that it is lost
                    known.close()
            session = None if fresh else self._sessions.get(key)
            if session is None:
                session = await _prepared(problem, device)
                if not fresh:
                    self._keep(key, session)
            session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if not session.users and self._sessions.get(key) is not session:
                session.close()

    def _keep(self, key: str, session: Session) -> None:
        self._sessions[key] = session
        idle = [k for k, s in self._sessions.items() if not s.users and k != key]
        for old in idle[: max(0, len(self._sessions) - KEPT_SESSIONS)]:
            self._sessions.pop(old).close()

    def close(self) -> None:
        """End the processes of all problems."""
        for session in self._sessions.values():
            session.close()


async def _prepared(problem: str, device: Device) -> Session:
    session = Session(device, problem)
    try:
        async with device.lease.alone():
            await prepare(session)
    except Refusal as refusal:
        session.close()
        raise advised(refusal, problem, device.name) from refusal.__cause__
    except BaseException:
        session.close()
        raise
    return session


def problem_id(problem: str, target: str) -> str:
    return hashlib.sha256(f"{target}\0{problem}".encode()).hexdigest()[:12]


class Workshop:
    """What verbs work with: the machine, what was built on it, and the problems that are prepared there.

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
