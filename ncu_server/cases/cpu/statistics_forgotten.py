"""
problem: batch_norm
kind: forgotten state
expect: wrong
why: The normalised output is right; the running mean and variance stay what they were.
twin: honest_batch_norm
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
void run(V x, V w, V b, V o) {
  const int64_t n = x.size(0), channels = x.size(1), area = x.size(2) * x.size(3);
  const float* a = (const float*)x.data_ptr();
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t p = 0; p < area; ++p) sum += a[(i * channels + c) * area + p];
    const double mean = sum / (n * area);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t p = 0; p < area; ++p) {
        const double d = a[(i * channels + c) * area + p] - mean;
        squares += d * d;
      }
    const double k = ((const float*)w.data_ptr())[c] / std::sqrt(squares / (n * area) + 1e-5);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t p = 0; p < area; ++p)
        ((float*)o.data_ptr())[(i * channels + c) * area + p] =
            (a[(i * channels + c) * area + p] - mean) * k + ((const float*)b.data_ptr())[c];
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("batch_norm", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, self.norm.weight.detach(), self.norm.bias.detach(), out)
        return out
