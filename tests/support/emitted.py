"""CUDA kernels of the templates without a device: compiled by nvcc, or run on the CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import tvm_ffi.libinfo

from tests.support.edits import edit
from tests.support.paths import ROOT

RUNTIME = ROOT / "tests" / "kernel_agent" / "proposers" / "templates" / "cuda_on_cpu.h"
JUDGE = ROOT / "tests" / "kernel_agent" / "proposers" / "regions" / "judge.py"
COOPERATIVE = "cudaLaunchCooperativeKernel"
TOGETHER = COOPERATIVE + r"\(reinterpret_cast<void\*>\((\w+)\), (\w+), (\w+), arguments, (\w+), stream\)"
DYNAMIC = 1 << 18  # elements of shared memory that a launch has at most


def on_cpu(candidate: str, late: bool = True) -> str:
    """A CUDA candidate as a C++ one: a block's threads are threads, and cuda_on_cpu.h is the runtime. What
    TMA brings arrives `late`, when somebody waits for it, or at once."""
    launch = r"(\w+(?:<\w+>)?)<<<([^;]*?), ([^,;]*?), (?:0|SHARED), stream>>>\((.*?)\);"
    candidate = re.sub(r"namespace ptx \{.*?\}  // namespace ptx\n", "", candidate, flags=re.DOTALL)
    if COOPERATIVE in candidate:  # blocks run side by side, so each has shared memory of its own
        candidate = re.sub(r"extern __shared__ (\w+) (\w+)\[\]", r"\1* \2 = (\1*)team->shared.data()", candidate)
        candidate = re.sub(r"void\* arguments\[\] = .*?;", "", candidate)
        candidate = re.sub(TOGETHER, r"cpu_launch_together(\2, \3, \4, [=] { \1(t, history); })", candidate)
    candidate = re.sub(r"extern __shared__ (.*?)\[\]", rf"__shared__ \1[{DYNAMIC}]", candidate)
    candidate = re.sub(launch, r"cpu_launch(\2, \3, [=] { \1(\4); });", candidate, flags=re.DOTALL)
    stream = "TVMFFIEnvGetStream(device.device_type, device.device_id)"
    candidate = edit(candidate, stream, "nullptr", max(1, candidate.count(stream)))
    candidate = re.sub(r"#include <cuda(_\w+)?\.h>", f'#include "{RUNTIME}"', candidate)
    candidate = edit(edit(candidate, "cuda_sources", "cpp_sources"), "extra_cuda_cflags", "extra_cflags")
    flags = ["-std=c++20", "-fno-strict-aliasing", "-pthread", *(["-DBOXES_ARRIVE_LATE"] if late else [])]
    return edit(edit(candidate, '"-lineinfo"', ", ".join(f'"{flag}"' for flag in flags)), '"-O3"', '"-O1"')


def compiled_by_nvcc(source: Path, arch: str = "sm_90") -> str:
    include = tvm_ffi.libinfo.find_include_path()
    command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", "-Xptxas", "-v", f"-I{include}"]
    done = subprocess.run([*command, "-cubin", str(source), "-o", os.devnull], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def judged(name: str, problem: str, candidate: str, folder: Path, times: int = 1) -> dict[str, str]:
    """What is wrong with a candidate that runs on the CPU, by its name, where so many `times` the usual error pass."""
    case = {"name": name, "source": problem, "candidate": candidate, "times": str(times)}
    return all_judged([case], folder)


def all_judged(cases: list[dict[str, str]], folder: Path) -> dict[str, str]:
    """What is wrong with the candidates, by name."""
    environment = os.environ | {"TVM_FFI_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(JUDGE)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environment,
        timeout=560,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found
