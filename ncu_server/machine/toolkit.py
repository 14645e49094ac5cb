"""Where the programs of the CUDA toolkit are that the server starts beside the compiler."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ncu_server.errors import Code, Refusal

BESIDE = ("nvidia/cu*/bin", "nvidia/cuda_*/bin", "triton/backends/nvidia/bin")
PACKAGES = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "compute-sanitizer": "nvidia-cuda-sanitizer-api",
}
USES = {
    "cuobjdump": "which reads what the compiler made",
    "nvdisasm": "which reads what the compiler made",
    "compute-sanitizer": "which watches a kernel's memory accesses",
}


def find(name: str) -> str:
    """Where a program is: on PATH, with the CUDA toolkit, or in a package.

    Raises Refusal NO_SANITIZER for compute-sanitizer, NO_PROFILER for the others, with how to get it.
    """
    there = there_is(name)
    if there is None:
        code = Code.NO_SANITIZER if name == "compute-sanitizer" else Code.NO_PROFILER
        fix = f"install the CUDA toolkit, or pip install {PACKAGES[name]}"
        raise Refusal(code, f"{name}, {USES[name]}, is not here", fix)
    return there


def there_is(name: str) -> str | None:
    """The same; None where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    compiler = shutil.which("nvcc")
    folders = [f"{home}/bin"] if home else []
    folders += [str(Path(compiler).resolve().parent)] if compiler else []
    folders += ["/usr/local/cuda/bin"]
    folders += [str(p) for place in sys.path if place for pattern in BESIDE for p in Path(place).glob(pattern)]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
