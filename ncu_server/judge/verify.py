"""What `verify_module` does: try a module by itself, in a folder and a process of its own, as its user would."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
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
from ncu_server.sandbox.supervisor import OVER, Supervisor
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
    """The module's source, the problem that it stands for, the target it is for, and seconds for each of two runs."""

    source: str
    problem: str
    target: str
    timeout_s: float


async def verify(machine: Machine, request: VerifyRequest, progress: Progress) -> evaluation.ModuleResult:
    """Import it, then use it. Raises Refusal for what is not its fault."""
    device = machine.device(request.target)
    await machine.require_room()
    lease, began = device.lease, time.monotonic()
    async with workplace(device.work) as place:
        (place / handoff.FILE).write_text(request.source)
        await progress("building the module by itself")
        async with lease.shared(progress) if device.target.builds_disturb else contextlib.nullcontext():
            checks = await _run(place, request, device.name, only_build=True)
        if all(check.ok for check in checks):
            async with lease.alone(progress):
                await progress("using the module by itself")
                checks = await _run(place, request, device.name, only_build=False)
    seconds = round(time.monotonic() - began, 2)
    return evaluation.ModuleResult(checks=checks, torch=version("torch"), seconds=seconds)


async def _run(place: Path, request: VerifyRequest, device: str, only_build: bool) -> list[evaluation.ModuleCheck]:
    """One process, and what it said; the trial in which it ended is one that failed."""
    spec = {"problem": request.problem, "device": device, "seed": process.SEED, "only_build": only_build}
    (place / handoff.SPEC).write_text(json.dumps(spec))
    (place / handoff.TOLD).unlink(missing_ok=True)
    path = json.dumps([str(ROOT), *(p for p in sys.path if p and Path(p).resolve() != Path.cwd())])
    walls = json.dumps(asdict(Policy("build", device, file_bytes=FILE_BYTES)))
    command = [sys.executable, "-P", "-s", "-c", BOOTSTRAP, path, walls, str(place)]
    paths = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    environment = process.environment(scrubbed(os.environ) | {"PATH": paths}, place)
    supervisor = Supervisor(place, process.outside(device), environment)
    try:
        ended = await supervisor.run(command, request.timeout_s, merged=True)
    except TimeoutError:
        return _checks(place, f"it took longer than {request.timeout_s:.0f} s")
    end = "it used too much memory" if ended.code == OVER else f"its process ended with exit code {ended.code}"
    return _checks(place, f"{end}: {_last(ended.output)}")


def _last(output: bytes) -> str:
    rows = output.decode(errors="replace").strip().splitlines()
    return rows[-1].strip()[:300] if rows else "it said nothing"


def _checks(place: Path, end: str) -> list[evaluation.ModuleCheck]:
    checks, begun = [], "builds"
    for row in _rows(place):
        match row:
            case {"begun": str(name)}:
                begun = name
            case {"name": str(name), "ok": bool() | None as ok, "why": str(why)}:
                checks.append(evaluation.ModuleCheck(name=name, ok=ok, why=why))
                begun = ""
    return [*checks, *([evaluation.ModuleCheck(name=begun, ok=False, why=end)] if begun else [])]


def _rows(place: Path) -> Sequence[Any]:
    """The lines of TOLD that are JSON: it was written beside foreign code, so that none of it need be true."""
    found = []
    with contextlib.suppress(OSError):
        for row in (place / handoff.TOLD).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                found.append(json.loads(row))
    return found
