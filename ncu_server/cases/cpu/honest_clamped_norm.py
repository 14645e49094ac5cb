"""
problem: clamped_norm
kind: constant outputs
expect: passed
why: Does the whole chain with fmin and fmax, which give the number where the other one is NaN.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t n = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    const float* row = (const float*)x.data_ptr() + r * n;
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < n; ++c) sum += row[c];
    const double mean = sum / n;
    for (int64_t c = 0; c < n; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double scale = 1 / std::sqrt(squares / n + 1e-5);
    for (int64_t c = 0; c < n; ++c)
      ((float*)o.data_ptr())[r * n + c] = std::fmax(std::fmin((float)((row[c] - mean) * scale), 0.0f), 0.0f);
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("chain", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
