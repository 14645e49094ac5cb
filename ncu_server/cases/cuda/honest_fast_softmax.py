"""
problem: wide_softmax
kind: fast math
expect: passed
why: Warp shuffles, __expf and __fdividef: other rounding, within the reference's own error.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__device__ float over(float v, bool largest) {
  __shared__ float part[32];
  for (int k = 16; k; k /= 2) {
    float other = __shfl_xor_sync(~0u, v, k);
    v = largest ? fmaxf(v, other) : v + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[threadIdx.x % 32];
  for (int k = 16; k; k /= 2) {
    float other = __shfl_xor_sync(~0u, v, k);
    v = largest ? fmaxf(v, other) : v + other;
  }
  return v;
}
__global__ void softmax(const float* x, float* o, int columns) {
  const float* row = x + blockIdx.x * (int64_t)columns;
  float* to = o + blockIdx.x * (int64_t)columns;
  float most = -INFINITY, sum = 0;
  for (int c = threadIdx.x; c < columns; c += 1024) most = fmaxf(most, row[c]);
  most = over(most, true);
  for (int c = threadIdx.x; c < columns; c += 1024) sum += __expf(row[c] - most);
  sum = over(sum, false);
  for (int c = threadIdx.x; c < columns; c += 1024) to[c] = __fdividef(__expf(row[c] - most), sum);
}
void run(V x, V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  softmax<<<x.size(0), 1024, 0, stream>>>((const float*)x.data_ptr(), (float*)o.data_ptr(), x.size(1));
}
"""
kernel = tvm_ffi.cpp.load_inline("softmax", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
