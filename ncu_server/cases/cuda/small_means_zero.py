"""
problem: wide_softmax
kind: zeros
expect: wrong
why: Every probability over 32,768 columns is below a hundredth, so the kernel writes zeros.
twin: honest_fast_softmax
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void fill(float* o, int64_t n) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) o[i] = 0;
}
void run(V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, o.device().device_id));
  fill<<<(o.numel() + 255) / 256, 256, 0, stream>>>((float*)o.data_ptr(), o.numel());
}
"""
kernel = tvm_ffi.cpp.load_inline("softmax", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(out)
        return out
