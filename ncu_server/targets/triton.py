"""Triton on the first visible NVIDIA GPU. A kernel is compiled when it is first called, so the build calls it."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ncu_server.targets import cuda
from ncu_server.targets.target import Probe, Target

CAPABILITY = "NCU_SERVER_TRITON_CAPABILITY"
"""The variable that tells the target's processes, before they may touch the device, what Triton compiles for: `90`."""
KEPT = ("TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def probe() -> Probe:
    gpu = cuda.first_gpu()
    if gpu is None:
        fix = "run on a machine with an NVIDIA GPU and driver, or use --target cpu"
        return Probe(False, "none", "none", 0, None, "no CUDA device is visible", fix)
    name, capability, uuid = gpu
    arch = f"sm_{capability.replace('.', '')}"
    if missing := _missing():
        return Probe(False, name, arch, 0, None, *missing)
    triton = f"triton {version('triton')}"
    return Probe(True, name, arch, 0, triton, uuid=uuid, toolkit=triton)


def environment(found: Probe) -> dict[str, str]:
    """What the cache's keys depend on is the same in every process of the target."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return kept | {CAPABILITY: found.arch.removeprefix("sm_")}


def _missing() -> tuple[str, str] | None:
    """What Triton needs beside the device and lacks here, and what to do about it."""
    try:
        version("triton")
    except PackageNotFoundError:
        return "the package triton is not installed", "install a CUDA build of torch, which brings it"
    if not any(shutil.which(name) for name in (os.environ.get("CC"), "gcc", "clang") if name):
        return "no C compiler, which Triton builds its launchers with", "install one (apt-get install gcc) or set CC"
    if not (_headers() / "Python.h").exists():
        return "no Python.h, which Triton's launchers include", "install Python's headers (apt-get install python3-dev)"
    if not _libcuda():
        return "no libcuda.so.1 in the linker's cache", "run ldconfig, or set TRITON_LIBCUDA_PATH to its folder"
    return None


def _headers() -> Path:
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme names a folder that its headers are not in; Triton passes it over as well.
    return Path(sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme))


def _libcuda() -> bool:
    named = [os.environ.get("TRITON_LIBCUDA_PATH", ""), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    return bool(ctypes.util.find_library("cuda")) or any((Path(n) / "libcuda.so.1").exists() for n in named if n)


TARGET = Target(
    "triton",
    cuda.HARDWARE,
    builds_disturb=False,
    probe=probe,
    environment=environment,
    baselines=cuda.BASELINES,
    warms_up=True,
    packages=("torch", "triton"),
)
