"""
problem: wide_scale_add
kind: endless
expect: timeout
why: The kernel spins on the device; the process cannot be interrupted while it waits.
twin: honest_scale_add
timeout: 15
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void spin(volatile float* o) { while (o[0] != 12345.0f) {} }
void run(V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, o.device().device_id));
  spin<<<1, 1, 0, stream>>>((float*)o.data_ptr());
}
"""
kernel = tvm_ffi.cpp.load_inline("spin", cuda_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()

    def forward(self, x, y):
        out = torch.zeros_like(x)
        kernel.run(out)
        return out
