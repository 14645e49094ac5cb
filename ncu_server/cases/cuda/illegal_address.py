"""
problem: wide_scale_add
kind: crash
expect: run_error
why: Writes far outside its memory and leaves the device's context in error.
twin: honest_scale_add
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void wild(float* o) { o[(1ll << 40) + threadIdx.x] = 1; }
void run(V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, o.device().device_id));
  wild<<<1, 32, 0, stream>>>((float*)o.data_ptr());
}
"""
kernel = tvm_ffi.cpp.load_inline("wild", cuda_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(out)
        return out
