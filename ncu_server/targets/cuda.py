"""CUDA C++ on the first visible NVIDIA GPU."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from ncu_server.rules.authorship import Evidence
from ncu_server.targets import architecture
from ncu_server.targets.nvml import CudaGauge
from ncu_server.targets.target import Hardware, Probe, Resolution, Target

QUERY = ("nvidia-smi", "--query-gpu=name,compute_cap,uuid", "--format=csv,noheader")
BASELINES = ("eager", "compile", "max-autotune-no-cudagraphs", "max-autotune")
RESOLUTION = Resolution(tie=0.01, apart_us=0.1)
"""0.1 us: the speed-ups of a kernel of 12 us over a reference of 16 us, judged ten times in fresh processes on an H100,
had a standard deviation of 1.0 % (benchmarks.same_against_same --part fresh)."""


def probe() -> Probe:
    compiler = _nvcc()
    gpu = first_gpu()
    if gpu is None:
        return Probe(
            False,
            "none",
            "none",
            0,
            compiler,
            "no CUDA device is visible",
            "run on a machine with an NVIDIA GPU and driver, or use --target cpu",
        )
    name, capability, uuid = gpu
    arch = f"sm_{capability.replace('.', '')}"
    if compiler is None:
        fix = "install the CUDA toolkit and put nvcc on PATH or set CUDA_HOME"
        return Probe(False, name, arch, 0, None, "no nvcc", fix)
    return Probe(True, name, arch, 0, compiler, uuid=uuid, toolkit=_release(compiler))


def environment(found: Probe) -> dict[str, str]:
    """Exactly one architecture, so that a build costs one pass; sm_90 is built as 9.0a to have wgmma. ptxas says what
    registers and shared memory it takes."""
    arch = architecture.dotted(found.arch)
    around = {"TVM_FFI_CUDA_ARCH_LIST": arch, "TORCH_CUDA_ARCH_LIST": arch, "NVCC_APPEND_FLAGS": "-Xptxas=-v"}
    if found.compiler:
        home = toolkit(found.compiler)
        # A toolkit from PyPI keeps its libraries in lib, where neither load_inline looks.
        around |= {"CUDA_HOME": str(home), "LIBRARY_PATH": f"{home}/lib64:{home}/lib"}
    return around


@functools.cache
def toolkit(compiler: str) -> Path:
    """Where the toolkit of an nvcc lies, which it tells itself; the program on PATH may be a script that calls it."""
    asked = [compiler, "--dryrun", "-E", "-x", "cu", os.devnull]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        if here := re.search(r"^#\$ _HERE_=(.+)$", done.stderr, re.MULTILINE):
            return Path(here[1].strip()).resolve().parent
    return Path(compiler).resolve().parent.parent


@functools.cache
def version(compiler: str) -> str | None:
    """The line of `nvcc --version` that names its release; None where it says none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=60, check=False)
        return next((row.strip() for row in done.stdout.splitlines() if "release" in row), None)
    return None


def _release(compiler: str) -> str | None:
    """The toolkit as people call it, such as `CUDA 13.0`."""
    found = re.search(r"release (\d+\.\d+)", version(compiler) or "")
    return f"CUDA {found[1]}" if found else None


def _nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return shutil.which("nvcc", path=f"{home}/bin" if home else None) or shutil.which("nvcc")


def first_gpu() -> tuple[str, str, str] | None:
    """Name, compute capability (`9.0`) and UUID of the GPU that CUDA_VISIBLE_DEVICES puts first."""
    if shutil.which(QUERY[0]) is None:
        return None
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, timeout=30, check=True).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    rows = [(row[0], row[1], row[2]) for r in answer.splitlines() if len(row := r.split(", ")) == 3]
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if first in ("", "-1"):  # hidden on purpose
        return None
    named = [row for number, row in enumerate(rows) if first == str(number) or row[2].startswith(first)]
    return next(iter(named or rows), None)


HARDWARE = Hardware(
    "cuda",
    torch_device="cuda",
    has_nvidia_tools=True,
    resolution=RESOLUTION,
    gauge=CudaGauge,
    evidence=Evidence(small_us=50.0, concealed_us=20.0, launches=True),
    sampling_s=0.4,
    first_sight_us=2.0,
    read_over_copy=1.15,
)
TARGET = Target(
    "cuda",
    HARDWARE,
    builds_disturb=False,
    probe=probe,
    environment=environment,
    baselines=BASELINES,
    build_arch=architecture.dotted,
)
