"""What a measuring machine owns: zygotes, leases, builds, prepared problems. Each is started at first use."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from ncu_server import versions
from ncu_server.build import Builds
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Lease
from ncu_server.reports import Reports
from ncu_server.session import Session
from ncu_server.targets import TARGETS, Probe, Target
from ncu_server.tickets import Tickets
from ncu_server.zygote import Zygote

KEPT_SESSIONS = 2
MIN_ROOM = 512 << 20


class Rig:
    """One a server. `cache` keeps what outlives it; everything else goes with `close`."""

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache or cache_directory()
        self.cache.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix=f"work-{os.getpid()}-", dir=self.cache))
        self._sweep()
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
        if not _room(self.cache):
            for zygote in self._zygotes.values():
                await zygote.cleared()
        if not _room(self.cache):
            sentence = f"less than {MIN_ROOM >> 20} MiB are free for builds and caches in {self.cache}"
            raise Refusal(Code.NO_ROOM, f"{sentence}; make room there, or set XDG_CACHE_HOME to a place that has some")

    def zygote(self, target: Target, probe: Probe) -> Zygote:
        """The warm process for a target."""
        if target.name not in self._zygotes:
            self._zygotes[target.name] = Zygote(self.work, self.environment(target, probe), target.device)
        return self._zygotes[target.name]

    def environment(self, target: Target, probe: Probe) -> dict[str, str]:
        """What the processes of a target find in their environment, beside what is passed on."""
        threads = probe.threads or len(os.sched_getaffinity(0))
        return {
            "OMP_NUM_THREADS": str(threads),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # tvm_ffi asks torch.cuda.is_available() when imported; without NVML that would initialise CUDA, and a
            # process that did so cannot fork workers.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            **({"NCU_SERVER_KEEPING": str(self.cache / "keeping")} if target.device == "cpu" else {}),
            **target.environment(probe),
        }

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
                await session.prepare()
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

    def _sweep(self) -> None:
        """Remove the work directories of servers that were killed."""
        for left in self.cache.glob("work-*-*"):
            pid = left.name.split("-")[1]
            if left != self.work and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True)


@functools.cache
def probed(name: str) -> Probe:
    """What this machine has of a target; asked once a server."""
    found = TARGETS[name].probe()
    refusal = versions.refusal(TARGETS[name].packages) if found.available else None
    if refusal is None:
        return found
    reason, fix = refusal
    return replace(found, available=False, unsupported=True, reason=reason, fix=fix)


def _room(place: Path) -> bool:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize >= MIN_ROOM and (disk.f_favail > 0 or disk.f_files == 0)


def problem_id(problem: str, target: str) -> str:
    return hashlib.sha256(f"{target}\0{problem}".encode()).hexdigest()[:12]


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/kernel_agent/ncu_server, ~/.cache where the variable is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernel_agent" / "ncu_server"
