"""Runs candidates' calls in a process that a profiler may watch, and says what became of each of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncu_server.compiler.builds import Build
from ncu_server.places import ROOT
from ncu_server.sandbox.enter import CACHES
from ncu_server.sandbox.policy import Policy
from ncu_server.worker.handoff import SPEC

BOOTSTRAP = """
import json, pathlib, sys
sys.path[:] = json.loads(sys.argv[1])
from ncu_server.sandbox import policy
policy.raise_walls(policy.from_wire(json.loads(sys.argv[2])), pathlib.Path(sys.argv[3]))
from ncu_server.worker import profiled
profiled.main(sys.argv[3])
"""
SEED = 20250101
FILE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate of a batch: its place there, its source, what was built of it."""

    number: int
    source: str
    build: Build


def prepare(
    directory: Path, problem: str, walls: Policy, jobs: Sequence[Job], warms_up: bool, timeline: bool = False
) -> list[str]:
    """Write what is to be done to `directory`; the command that does it, behind `walls` on their device."""
    spec: dict[str, Any] = {
        "problem": problem,
        "device": walls.device,
        "seed": SEED,
        "timeline": timeline,
        "candidates": [
            {
                "number": job.number,
                "source": job.source,
                "libraries": job.build.libraries,
                "kernels": job.build.kernels if warms_up else None,
            }
            for job in jobs
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / SPEC).write_text(json.dumps(spec))
    path = json.dumps([str(ROOT), *(p for p in sys.path if p and Path(p).resolve() not in (ROOT, Path.cwd()))])
    return [sys.executable, "-P", "-s", "-c", BOOTSTRAP, path, json.dumps(asdict(walls)), str(directory)]


def inside(device: str, jobs: Sequence[Job], readable: Sequence[str] = ()) -> Policy:
    """What the process raises around itself, with what is to be `readable` beside the builds."""
    return Policy("profiled", device, (*readable, *(job.build.directory for job in jobs)))


def outside(device: str) -> Policy:
    """What stands around the profiler and the process."""
    return Policy("profile", device, file_bytes=FILE_BYTES)


def none(device: str) -> Policy:
    """No walls."""
    return Policy("light", device)


def environment(base: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The variables of the process: caches, home and temporary files are its own, and gone with it."""
    own = {name: str(directory / place) for name, place in CACHES.items()}
    return dict(base) | own | {"HOME": str(directory), "TMPDIR": str(directory)}
