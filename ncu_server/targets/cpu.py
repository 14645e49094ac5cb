"""C++ with OpenMP on this machine's cores."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from ncu_server.rules.authorship import Evidence
from ncu_server.targets.target import Hardware, Probe, Resolution, Target

# Timing with every core busy measures the neighbours; below four cores one is used, the same for both sides.
MANY_CORES = 4
FEATURES = (("avx512f", "avx512"), ("avx2", "avx2"), ("asimd", "neon"))
BASELINES = ("eager", "compile", "max-autotune-no-cudagraphs")


def threads() -> int:
    """Threads of reference and candidate alike."""
    cores = len(os.sched_getaffinity(0))
    return cores if cores >= MANY_CORES else 1


def probe() -> Probe:
    compiler = _compiler()
    model, flags = _cpuinfo()
    feature = next((name for flag, name in FEATURES if flag in flags), "")
    arch = f"{platform.machine()}-{feature}" if feature else platform.machine()
    if compiler is None:
        fix = "install one (apt-get install g++) or set CXX to one that works"
        return Probe(False, model, arch, threads(), None, "no C++ compiler that compiles", fix)
    return Probe(True, model, arch, threads(), compiler, toolkit=_toolkit(compiler))


def environment(found: Probe) -> dict[str, str]:
    return {}


def _compiler() -> str | None:
    """The C++ compiler that builds will use, if it compiles an empty program."""
    command = shlex.split(os.environ.get("CXX", "c++"))
    found = shutil.which(command[0]) if command else None
    if found is None:
        return None
    check = [found, *command[1:], "-x", "c++", "-fsyntax-only", "-"]
    done = subprocess.run(check, input="int main() {}", text=True, capture_output=True, timeout=60, check=False)
    return found if done.returncode == 0 else None


def _toolkit(compiler: str) -> str:
    """The compiler with its version, and the processor that it takes this one for where it says so (GCC)."""
    version = _said([compiler, "--version"])
    native = re.search(r"-march=\s+(\S+)", _said([compiler, "-march=native", "-Q", "--help=target"]))
    said = next(iter(version.splitlines()), compiler)
    return f"{said}, -march=native is {native[1]}" if native else said


def _said(command: list[str]) -> str:
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else ""


def _cpuinfo() -> tuple[str, set[str]]:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine(), set()
    rows = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
    fields = {k.strip(): v.strip() for k, v in rows.items()}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return fields.get("model name", platform.machine()), flags


class CpuGauge:
    """The load of the machine while something is timed: one busy process is ours."""

    def __init__(self, uuid: str | None) -> None:
        self._load = 0.0

    def __call__(self) -> None:
        self._load = max(self._load, os.getloadavg()[0])

    def notes(self) -> list[str]:
        cores = len(os.sched_getaffinity(0))
        if self._load <= cores + 1:
            return []
        return [f"the machine was busy while this was timed: load {self._load:.1f} on {cores} cores"]

    def facts(self) -> dict[str, float]:
        return {"load": round(self._load, 2)}


HARDWARE = Hardware(
    "cpu",
    torch_device="cpu",
    has_nvidia_tools=False,
    resolution=Resolution(0.06),
    gauge=CpuGauge,
    evidence=Evidence(small_us=200.0, concealed_us=100.0, launches=False),
    sampling_s=1.5,
    first_sight_us=50.0,
    read_over_copy=1.4,
    keeps_memory=True,
)
TARGET = Target("cpu", HARDWARE, builds_disturb=True, probe=probe, environment=environment, baselines=BASELINES)
