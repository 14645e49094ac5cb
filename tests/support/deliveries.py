"""A problem, a kernel for it and what a run records of both, as delivered files are made of."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from kernel_agent.delivery.module import delivered
from kernel_agent.run.types import Description, Device, Problem
from tests.support.scripted_run import DESCRIPTION

PROBLEM = """from __future__ import annotations
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x, offset):
        return torch.relu(x) * self.scale + offset


def get_inputs():
    return [torch.randn(64, 256), 0.5]


def get_init_inputs():
    return [256]
"""
KERNEL = '''
import tvm_ffi.cpp

SOURCE = r"""
#include <cstdint>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView scale, tvm::ffi::TensorView out, double offset) {
  const auto* from = static_cast<const float*>(x.data_ptr());
  const auto* by = static_cast<const float*>(scale.data_ptr());
  auto* to = static_cast<float*>(out.data_ptr());
  TVM_FFI_ICHECK_EQ(x.dtype().bits, 32) << "float32 alone";
  const int64_t columns = x.size(-1);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = from[i] > 0 ? from[i] : 0;
    to[i] = v * by[i % columns] + static_cast<float>(offset);
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("scaled", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(Model):
    def __init__(self, width):
        super(ModelNew, self).__init__(width)

    def forward(self, x, offset):
        out = torch.empty_like(x)
        kernel.run(x, self.scale.detach(), out, offset)
        return out
'''
CONTRACT = {
    "calls": [
        {
            "takes": [{"shape": [64, 256], "dtype": "float32", "strides": [256, 1]}],
            "gives": [{"shape": [64, 256], "dtype": "float32"}],
        }
    ],
    "leaves": ["tensor", "float"],
    "form": ["tuple", [["list", [None, None]], ["dict", {}]]],
    "returns": None,
    "is_plain": True,
    "parameters": {"scale": {"shape": [256], "dtype": "float32"}},
    "changes": False,
    "made": [[256], {}],
}
CUDA = Device("cuda", "NVIDIA H200", "sm_90", 0)


def description(**changes: object) -> Description:
    return replace(DESCRIPTION, contract=CONTRACT, **changes)  # type: ignore[arg-type]


def whole(bind: str = "tvm_ffi", target: str = "cpu", name: str = "scaled", **changes: object) -> str:
    source = PROBLEM + KERNEL
    return delivered(source, Problem(name, PROBLEM, target), description(**changes), bind)


def ran(place: Path, script: str, *words: str, **variables: str) -> list[str]:
    """The lines that a fresh process prints which runs `script` in the folder `place`, with no checkout on its path."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
    environment = kept | {"HOME": str(place), "PATH": path, "PYTHONPATH": str(place)} | variables
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()
