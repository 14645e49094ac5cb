"""
problem: bfloat16_linear
kind: lower precision asked
expect: passed
why: The problem is in bfloat16; the kernel multiplies in it, adds in float32 and rounds once.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void linear(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* o, int inner, int columns) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = blockIdx.x * 8 + warp, row = blockIdx.y;
  float sum = 0;
  for (int k = lane; k < inner; k += 32)
    sum += __bfloat162float(x[row * inner + k]) * __bfloat162float(w[column * inner + k]);
  for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
  if (lane == 0) o[row * columns + column] = __float2bfloat16(sum);
}
void run(V x, V w, V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  linear<<<dim3(w.size(0) / 8, x.size(0)), 256, 0, stream>>>(
      (const __nv_bfloat16*)x.data_ptr(), (const __nv_bfloat16*)w.data_ptr(), (__nv_bfloat16*)o.data_ptr(), x.size(1),
      w.size(0));
}
"""
kernel = tvm_ffi.cpp.load_inline("linear", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128, 512).bfloat16())

    def forward(self, x):
        out = torch.empty(x.shape[0], 128, dtype=torch.bfloat16, device=x.device)
        kernel.run(x, self.weight.detach(), out)
        return out
