"""
problem: square_matmul
kind: lower precision
expect: wrong
why: Rounds both operands to bfloat16 on the way into shared memory.
twin: honest_matmul
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void matmul(const float* a, const float* b, float* o, int k, int n) {
  __shared__ __nv_bfloat16 ta[16][16], tb[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < k; t += 16) {
    ta[threadIdx.y][threadIdx.x] = __float2bfloat16(a[row * k + t + threadIdx.x]);
    tb[threadIdx.y][threadIdx.x] = __float2bfloat16(b[(t + threadIdx.y) * n + column]);
    __syncthreads();
    for (int u = 0; u < 16; ++u) sum += __bfloat162float(ta[threadIdx.y][u]) * __bfloat162float(tb[u][threadIdx.x]);
    __syncthreads();
  }
  o[row * n + column] = sum;
}
void run(V a, V b, V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, a.device().device_id));
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  matmul<<<dim3(n / 16, m / 16), dim3(16, 16), 0, stream>>>((const float*)a.data_ptr(), (const float*)b.data_ptr(),
                                                            (float*)o.data_ptr(), k, n);
}
"""
kernel = tvm_ffi.cpp.load_inline("matmul", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        kernel.run(a, b, out)
        return out
