"""
problem: histogram
kind: order of additions
expect: passed
why: Adds with atomics in shared and global memory; the last bits differ from call to call.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void histogram(const float* x, const int64_t* index, float* o, int64_t n) {
  __shared__ float part[256];
  part[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) atomicAdd(part + index[i], x[i]);
  __syncthreads();
  atomicAdd(o + threadIdx.x, part[threadIdx.x]);
}
void run(V x, V index, V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  histogram<<<64, 256, 0, stream>>>((const float*)x.data_ptr(), (const int64_t*)index.data_ptr(), (float*)o.data_ptr(),
                                    x.numel());
}
"""
kernel = tvm_ffi.cpp.load_inline("histogram", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x, index):
        out = torch.zeros(256, device=x.device)
        kernel.run(x, index, out)
        return out
