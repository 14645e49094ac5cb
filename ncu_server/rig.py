"""What a measuring machine owns: zygotes, leases, builds, prepared problems. Each is started at first use."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from ncu_server import places, versions
from ncu_server.build import Builds
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Lease
from ncu_server.places import Places
from ncu_server.preparation import prepare
from ncu_server.reports import Reports
from ncu_server.session import Session
from ncu_server.targets import TARGETS, Probe, Target
from ncu_server.tickets import Tickets
from ncu_server.trusted import advised
from ncu_server.walls import PACKAGE
from ncu_server.zygote import Zygote

KEPT_SESSIONS = 2


class Rig:
    """One a server. `cache` keeps what outlives it; everything else goes with `close`.

    Raises Refusal NO_ROOM where no folder can be used.
    """

    def __init__(self, where: Places | Path | None = None) -> None:
        self.places = where if isinstance(where, Places) else places.chosen(where)
        self.cache = self.places.cache
        self.work, self._lock = places.workplace(self.places.building)
        self._aliases = self.work / "names"
        for left in places.left_behind(self.places.building):
            shutil.rmtree(left, ignore_errors=True)
        self.builds = Builds(self.work)
        self.reports = Reports(self.cache / "reports")
        self._zygotes: dict[str, Zygote] = {}
        self._leases: dict[str, Lease] = {}
        self._sessions: dict[str, Session] = {}
        self._preparing = asyncio.Lock()

    def target(self, name: str) -> tuple[Target, Probe]:
        """The target and what this machine has of it. Raises Refusal where it is unknown or absent."""
        if name not in TARGETS:
            raise Refusal(Code.UNKNOWN_TARGET, f"unknown target {name!r}; there are: {', '.join(TARGETS)}")
        probe = probed(name)
        if not probe.available:
            missing = Code.NO_COMPILER if probe.compiler is None and probe.device != "none" else Code.NO_DEVICE
            code = Code.UNSUPPORTED_VERSION if probe.unsupported else missing
            raise Refusal(code, f"target {name!r} is not available here: {probe.reason}; {probe.fix}")
        return TARGETS[name], probe

    async def require_room(self) -> None:
        """Raises Refusal NO_ROOM where the disk is full and stays so when what ended children wrote has gone."""
        if places.short_of_room(self.places):
            for zygote in self._zygotes.values():
                await zygote.cleared()
        if full := places.short_of_room(self.places):
            sentence = f"less than {places.MIN_ROOM >> 20} MiB are free for builds and caches in {full}"
            raise Refusal(Code.NO_ROOM, f"{sentence}; make room there, or set XDG_CACHE_HOME to a place that has some")

    def zygote(self, target: Target, probe: Probe) -> Zygote:
        """The warm process for a target."""
        if target.name not in self._zygotes:
            self._zygotes[target.name] = Zygote(self.work, self.environment(target, probe), target.device)
        return self._zygotes[target.name]

    def environment(self, target: Target, probe: Probe) -> dict[str, str]:
        """What the processes of a target find in their environment, beside what is passed on."""
        threads = probe.threads or len(os.sched_getaffinity(0))
        names = places.aliased(self._aliases, _installed())
        building = self.places.building
        return {
            "OMP_NUM_THREADS": str(threads),
            "PATH": f"{places.renamed(str(Path(sys.executable).parent), names)}:{os.environ.get('PATH', os.defpath)}",
            "TORCHINDUCTOR_CACHE_DIR": str(building / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            places.ALIASES: str(self._aliases),
            # tvm_ffi asks torch.cuda.is_available() when imported; without NVML that would initialise CUDA, and a
            # process that did so cannot fork workers.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            **({"NCU_SERVER_KEEPING": str(building / "keeping")} if target.device == "cpu" else {}),
            **self.variables(target, probe),
        }

    def variables(self, target: Target, probe: Probe) -> dict[str, str]:
        """What a target wants in the environment of its processes, its toolkit under a plain name."""
        found = target.environment(probe)
        if home := found.get("CUDA_HOME"):
            name = places.renamed(home, places.aliased(self._aliases, [home]))
            found = {variable: value.replace(home, name) for variable, value in found.items()}
        return found

    def lease(self, target: Target) -> Lease:
        """The lease of the device that a target runs on."""
        device = (probed(target.name).uuid if target.name in TARGETS else None) or target.device
        if device not in self._leases:
            self._leases[device] = Lease(len(os.sched_getaffinity(0)), Tickets(device))
        return self._leases[device]

    @contextlib.asynccontextmanager
    async def session(self, problem: str, target: Target, probe: Probe, fresh: bool = False) -> AsyncIterator[Session]:
        """The prepared problem; `fresh` makes one with new secrets and new processes that ends with its use."""
        key = problem_id(problem, target.name)
        async with self._preparing:
            if (known := self._sessions.get(key)) and known.broken:
                self._sessions.pop(key)
                if not known.users:  # else its last user closes it: who waits with it is to learn that it is lost
                    known.close()
            session = None if fresh else self._sessions.get(key)
            if session is None:
                session = await self._prepare(problem, target, probe)
                if not fresh:
                    self._keep(key, session)
            session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            if not session.users and self._sessions.get(key) is not session:
                session.close()

    async def _prepare(self, problem: str, target: Target, probe: Probe) -> Session:
        session = Session(self.zygote(target, probe), problem, target)
        try:
            async with self.lease(target).alone():
                await prepare(session)
        except Refusal as refusal:
            session.close()
            raise advised(refusal, problem, target.device) from refusal.__cause__
        except BaseException:
            session.close()
            raise
        return session

    def _keep(self, key: str, session: Session) -> None:
        self._sessions[key] = session
        idle = [k for k, s in self._sessions.items() if not s.users and k != key]
        for old in idle[: max(0, len(self._sessions) - KEPT_SESSIONS)]:
            self._sessions.pop(old).close()

    def close(self) -> None:
        """End all children and remove the work directory."""
        for session in self._sessions.values():
            session.close()
        for zygote in self._zygotes.values():
            zygote.close()
        shutil.rmtree(self.work, ignore_errors=True)
        self._lock.close()


@functools.cache
def probed(name: str) -> Probe:
    """What this machine has of a target; asked once a server."""
    found = TARGETS[name].probe()
    refusal = versions.refusal(TARGETS[name].packages) if found.available else None
    if refusal is None:
        return found
    reason, fix = refusal
    return replace(found, available=False, unsupported=True, reason=reason, fix=fix)


def problem_id(problem: str, target: str) -> str:
    return hashlib.sha256(f"{target}\0{problem}".encode()).hexdigest()[:12]


def _installed() -> list[str]:
    """The folders whose files compilers are given: the interpreter's, packages', this package's."""
    return [sys.prefix, sys.base_prefix, sys.exec_prefix, str(PACKAGE.parent), *(p for p in sys.path if p)]
