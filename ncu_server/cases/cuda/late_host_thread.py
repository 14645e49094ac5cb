"""
problem: wide_scale_add
kind: late thread
expect: wrong|suspect|run_error
why: A thread of the host launches the kernel some milliseconds after the call has returned.
twin: honest_scale_add
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <chrono>
#include <cuda_runtime.h>
#include <thread>
using V = tvm::ffi::TensorView;
__global__ void scale_add(const float* x, const float* y, float* o, float s, int64_t n) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) o[i] = x[i] * s + y[i];
}
void run(V x, V y, V o, double s) {
  const float *a = (const float*)x.data_ptr(), *b = (const float*)y.data_ptr();
  float* d = (float*)o.data_ptr();
  const int64_t n = x.numel();
  const int device = x.device().device_id;
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    cudaSetDevice(device);
    scale_add<<<(n + 255) / 256, 256, 0, cudaStreamPerThread>>>(a, b, d, (float)s, n);
  }).detach();
}
"""
kernel = tvm_ffi.cpp.load_inline("late", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.held = []

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        self.held = [*self.held[-32:], out]
        return out
