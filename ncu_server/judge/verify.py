"""What `verify_module` does: try a module by itself, in a folder and a process of its own, as its user would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ncu_server.harness import process
from ncu_server.machine.lease import Progress
from ncu_server.machine.machine import Machine
from ncu_server.machine.scratch import workplace
from ncu_server.places import ROOT
from ncu_server.sandbox.enter import scrubbed
from ncu_server.sandbox.policy import Policy
from ncu_server.sandbox.supervisor import OVER, Ended, Supervisor
from ncu_server.wire import evaluation
from ncu_server.worker import handoff

BOOTSTRAP = """
import json, pathlib, sys
sys.path[:] = json.loads(sys.argv[1])
from ncu_server.sandbox import policy
policy.raise_walls(policy.from_wire(json.loads(sys.argv[2])), pathlib.Path(sys.argv[3]))
from ncu_server.worker import alone
alone.main(sys.argv[3])
"""
FILE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """The module's source, the problem that it stands for, the target it is for, and seconds to build it in, and to use
    it in."""

    source: str
    problem: str
    target: str
    timeout_s: float


async def verify(machine: Machine, request: VerifyRequest, progress: Progress) -> evaluation.ModuleResult:
    """Import it, then use it, in one process, with the device held for the use alone. Raises Refusal for what is not
    its fault."""
    device = machine.device(request.target)
    await machine.require_room()
    lease, began = device.lease, time.monotonic()
    async with workplace(device.work) as place, _trial(place, request, device.name) as trial:
        await progress("building the module by itself")
        async with lease.shared(progress) if device.target.builds_disturb else contextlib.nullcontext():
            checks = await trial.built()
        if all(check.ok for check in checks):
            async with lease.alone(progress):
                await progress("using the module by itself")
                checks = await trial.used()
    seconds = round(time.monotonic() - began, 2)
    return evaluation.ModuleResult(checks=checks, torch=version("torch"), seconds=seconds)


@dataclass(frozen=True, slots=True)
class Trial:
    """The process that tries a module: `ended` once it is gone, `ready` once the module is built and waits for GO."""

    place: Path
    timeout_s: float
    ended: asyncio.Task[Ended]
    ready: asyncio.Event
    go: int

    async def built(self) -> list[evaluation.ModuleCheck]:
        """What there is to say once it is built, or could not be."""
        waits = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait({waits, self.ended}, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()
        return _checks(self.place, "") if self.ready.is_set() else await self._over("")

    async def used(self) -> list[evaluation.ModuleCheck]:
        """What there is to say once it was used."""
        os.write(self.go, b"\n")
        await asyncio.wait({self.ended}, timeout=self.timeout_s)
        return await self._over(handoff.AGREES)

    async def _over(self, next_: str) -> list[evaluation.ModuleCheck]:
        """The trial in which the process ended is one that failed, where it was built and waited that is `next_`."""
        if not self.ended.done():
            return _checks(self.place, f"it took longer than {self.timeout_s:.0f} s", next_)
        ended = await self.ended
        end = "it used too much memory" if ended.code == OVER else f"its process ended with exit code {ended.code}"
        return _checks(self.place, f"{end}: {_last(ended.output)}", next_)


@contextlib.asynccontextmanager
async def _trial(place: Path, request: VerifyRequest, device: str) -> AsyncIterator[Trial]:
    """A process that builds the module, waits to be let go on, then uses it."""
    (place / handoff.FILE).write_text(request.source)
    spec = {"problem": request.problem, "device": device, "seed": process.SEED}
    (place / handoff.SPEC).write_text(json.dumps(spec))
    os.mkfifo(place / handoff.GO)
    path = json.dumps([str(ROOT), *(p for p in sys.path if p and Path(p).resolve() != Path.cwd())])
    walls = json.dumps(asdict(Policy("build", device, file_bytes=FILE_BYTES)))
    command = [sys.executable, "-P", "-s", "-c", BOOTSTRAP, path, walls, str(place)]
    paths = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    environment = process.environment(scrubbed(os.environ) | {"PATH": paths}, place)
    ready = asyncio.Event()

    def heard(_: bytes) -> None:
        if any(row.get("name") == handoff.BUILDS and row.get("ok") for row in _rows(place)):
            ready.set()

    supervisor = Supervisor(place, process.outside(device), environment)
    ended = asyncio.create_task(supervisor.run(command, None, heard, merged=True))
    go = os.open(place / handoff.GO, os.O_RDWR)  # so that neither end waits for the other to open it
    try:
        yield Trial(place, request.timeout_s, ended, ready, go)
    finally:
        os.close(go)
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


def _last(output: bytes) -> str:
    rows = output.decode(errors="replace").strip().splitlines()
    return rows[-1].strip()[:300] if rows else "it said nothing"


def _checks(place: Path, end: str, after_build: str = "") -> list[evaluation.ModuleCheck]:
    checks, begun = [], handoff.BUILDS
    for row in _rows(place):
        match row:
            case {"begun": str(name)}:
                begun = name
            case {"name": str(name), "ok": bool() | None as ok, "why": str(why)}:
                checks.append(evaluation.ModuleCheck(name=name, ok=ok, why=why))
                begun = after_build if name == handoff.BUILDS else ""
    return [*checks, *([evaluation.ModuleCheck(name=begun, ok=False, why=end)] if begun else [])]


def _rows(place: Path) -> list[dict[str, Any]]:
    """The lines of TOLD that are JSON objects: it was written beside foreign code, so that none of it need be true."""
    found = []
    with contextlib.suppress(OSError):
        for row in (place / handoff.TOLD).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                found.append(json.loads(row))
    return [row for row in found if isinstance(row, dict)]
