"""
problem: big_sums
kind: overflow
expect: wrong
why: Adds in 32 bits what needs 44.
twin: honest_big_sums
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void sums(const int64_t* x, int64_t* o, int columns) {
  int sum = 0;
  for (int c = threadIdx.x; c < columns; c += 32) sum += (int)x[blockIdx.x * (int64_t)columns + c];
  for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
  o[blockIdx.x] = sum;
}
void run(V x, V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  sums<<<x.size(0), 32, 0, stream>>>((const int64_t*)x.data_ptr(), (int64_t*)o.data_ptr(), x.size(1));
}
"""
kernel = tvm_ffi.cpp.load_inline("sums", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        kernel.run(x, out)
        return out
