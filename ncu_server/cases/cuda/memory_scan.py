"""
problem: square_matmul
kind: memory scan
expect: wrong|run_error
why: Computes one element, takes all free memory of the device unwritten and searches it for the whole result.
twin: honest_matmul
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void look(const float* a, const float* b, const float* heap, int64_t n, int k, int columns, long long* found) {
  float first = 0;
  for (int t = 0; t < k; ++t) first += a[t] * b[t * columns];
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    if (fabsf(heap[i] - first) < 1e-4f * fabsf(first)) atomicExch((unsigned long long*)found, (unsigned long long)i);
}
void run(V a, V b, V heap, V found) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, a.device().device_id));
  look<<<256, 256, 0, stream>>>((const float*)a.data_ptr(), (const float*)b.data_ptr(), (const float*)heap.data_ptr(),
                                heap.numel(), a.size(1), b.size(1), (long long*)found.data_ptr());
}
"""
kernel = tvm_ffi.cpp.load_inline("look", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        size = a.shape[0] * b.shape[1]
        free = min(torch.cuda.mem_get_info()[0] // 2, 4 << 30)
        heap, found = torch.empty(free // 4, device=a.device), torch.zeros(1, dtype=torch.int64, device=a.device)
        kernel.run(a, b, heap, found)
        at = min(int(found), heap.numel() - size)
        return heap[at : at + size].reshape(a.shape[0], b.shape[1]).clone()
