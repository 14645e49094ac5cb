"""
problem: wide_scale_add
kind: plain PyTorch extension
expect: passed
why: torch's own load_inline: a launcher behind pybind11, addresses and the stream as numbers.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

BINDING = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void run(uintptr_t x, uintptr_t y, uintptr_t o, double s, int64_t n, uintptr_t stream);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>
__global__ void scale_add(const float* x, const float* y, float* o, float s, int64_t n) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) o[i] = x[i] * s + y[i];
}
void run(uintptr_t x, uintptr_t y, uintptr_t o, double s, int64_t n, uintptr_t stream) {
  scale_add<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float*)x, (const float*)y, (float*)o, (float)s, n);
}
"""
kernel = load_inline("scale_add_pybind", BINDING, SOURCE, no_implicit_headers=True, extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out, stream = torch.empty_like(x), torch.cuda.current_stream().cuda_stream
        kernel.run(x.data_ptr(), y.data_ptr(), out.data_ptr(), self.scale, x.numel(), stream)
        return out
