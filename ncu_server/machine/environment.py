"""What `check_environment` does: say what this machine can measure, and what to do about what it cannot."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from ncu_server import places
from ncu_server.machine import toolkit, versions
from ncu_server.machine.machine import probed
from ncu_server.machine.tickets import ROOT_VARIABLE, Tickets
from ncu_server.places import Places
from ncu_server.sandbox import policy
from ncu_server.targets import TARGETS, nvml
from ncu_server.wire import evaluation

TOOLS = {
    "c++": ("--version", "install g++ (apt-get install g++)"),
    "ninja": ("--version", "pip install ninja"),
    "nvcc": ("--version", "install the CUDA toolkit; only the cuda target needs it"),
    "ncu": ("--version", "install Nsight Compute; only profiling needs it"),
    "nvdisasm": ("--version", "pip install nvidia-cuda-nvdisasm; only disassemble needs it"),
    "compute-sanitizer": ("--version", "pip install nvidia-cuda-sanitizer-api; only sanitize_kernel needs it"),
    "nvidia-smi": (
        "--query-gpu=driver_version --format=csv,noheader",
        "install the NVIDIA driver; only the targets cuda and triton need it",
    ),
}


def check(where: Places, brief: bool = False) -> evaluation.EnvironmentResult:
    """Targets, GPUs, tools and versions; starts nothing that lasts. `brief`: nothing but targets and GPUs."""
    found = evaluation.EnvironmentResult(
        server=versions.installed("kernel-agent") or "source tree",
        python=platform.python_version(),
        torch=versions.installed("torch"),
        versions=[],
        targets=[_target(name) for name in TARGETS],
        tools=[],
        host=platform.node(),
        gpus=[evaluation.GpuResult(**asdict(gpu)) for gpu in nvml.visible()],
    )
    if not brief:
        found.versions = [_version(package) for package in versions.TRIED]
        found.tools = [_tool(name) for name in TOOLS]
        found.walls, found.places = _walls(), [*_folders(where), *_queues()]
    return found


def _folders(where: Places) -> Iterator[evaluation.PlaceResult]:
    for name, path, why in (
        ("cache", where.cache, where.why_cache),
        ("builds", where.building, where.why_building),
    ):
        fix = places.FIX if why and name == "cache" else None  # builds are as well off anywhere
        yield evaluation.PlaceResult(name=name, path=places.printable(path), usable=True, why=why, fix=fix)


def _queues() -> Iterator[evaluation.PlaceResult]:
    """The folders through which the servers of this machine wait for one another."""
    here = [probed(name).uuid or TARGETS[name].device for name in TARGETS if probed(name).available]
    for queue in (Tickets(device) for device in dict.fromkeys(here)):
        fault = queue.unusable()
        fix = f"let every user write there, or set {ROOT_VARIABLE} to a folder that all can" if fault else None
        yield evaluation.PlaceResult(name="queue", path=str(queue.place), usable=not fault, why=fault, fix=fix)


def _walls() -> list[evaluation.WallResult]:
    """The walls of each available target; targets whose wall stands alike share a row."""
    names = [name for name in TARGETS if probed(name).available] or ["cpu"]
    found = {device: _around(device) for device in dict.fromkeys(TARGETS[name].device for name in names)}
    rows: dict[policy.WallStatus, list[str]] = {}
    for name in names:
        for standing in found[TARGETS[name].device]:
            rows.setdefault(standing, []).append(name)
    return [evaluation.WallResult(name=s.name, stands=s.stands, why=s.why, targets=on) for s, on in rows.items()]


def _around(device: str) -> list[policy.WallStatus]:
    """The walls of the run; those of the build as well where they differ in standing."""
    run, build = policy.wall_statuses("run", device), policy.wall_statuses("build", device)
    stands = {s.name: s.stands for s in run}
    apart = [replace(s, name=f"{s.name} (build)") for s in build if s.stands != stands.get(s.name)]
    return [*run, *apart]


def _target(name: str) -> evaluation.TargetResult:
    p = probed(name)
    return evaluation.TargetResult(
        name=name,
        available=p.available,
        device=p.device,
        arch=p.arch,
        threads=p.threads,
        compiler=p.compiler,
        reason=p.reason,
        fix=p.fix,
    )


def _version(package: str) -> evaluation.VersionResult:
    return evaluation.VersionResult(
        package=package,
        version=versions.installed(package),
        tried=versions.span(package),
        note=versions.note(package),
    )


def _tool(name: str) -> evaluation.ToolResult:
    flags, fix = TOOLS[name]
    path = toolkit.there_is(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        return evaluation.ToolResult(name=name, path=None, version=None, fix=fix)
    try:
        done = subprocess.run([path, *flags.split()], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return evaluation.ToolResult(name=name, path=path, version=None, fix=fix)
    said = (done.stdout or done.stderr).splitlines()
    rows = [row for row in said if any(c.isdigit() for c in row) and not row.startswith(("Copyright", "Built on"))]
    return evaluation.ToolResult(name=name, path=path, version=rows[0].strip() if rows else None, fix=None)
