"""CUDA kernels of the templates without a device: compiled by nvcc, or run on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import tvm_ffi.libinfo

from tests.support.edits import edit
from tests.support.paths import ROOT

RUNTIME = ROOT / "tests" / "kernel_agent" / "proposers" / "templates" / "cuda_on_cpu.h"


def on_cpu(candidate: str) -> str:
    """A CUDA candidate as a C++ one: a block's threads are threads, and cuda_on_cpu.h is the runtime."""
    launch = r"(\w+)<<<(.*?), ([^,]*?), 0, stream>>>\((.*?)\);"
    candidate = re.sub(launch, r"cpu_launch(\2, \3, [=] { \1(\4); });", candidate, flags=re.DOTALL)
    stream = "TVMFFIEnvGetStream(device.device_type, device.device_id)"
    candidate = edit(candidate, stream, "nullptr", times=candidate.count("void launch("))
    candidate = re.sub(r"#include <cuda_\w+.h>", f'#include "{RUNTIME}"', candidate)
    candidate = edit(edit(candidate, "cuda_sources", "cpp_sources"), "extra_cuda_cflags", "extra_cflags")
    return edit(edit(candidate, '"-lineinfo"', '"-std=c++20", "-fno-strict-aliasing", "-pthread"'), '"-O3"', '"-O1"')


def compiled_by_nvcc(source: Path, arch: str = "sm_90") -> str:
    include = tvm_ffi.libinfo.find_include_path()
    command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", "-Xptxas", "-v", f"-I{include}"]
    done = subprocess.run([*command, "-cubin", str(source), "-o", os.devnull], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr
