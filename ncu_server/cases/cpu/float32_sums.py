"""
problem: float64_sums
kind: lower precision
expect: wrong
why: Reads a float64 problem as float32, though it adds up in float64.
twin: honest_block_sums
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <algorithm>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t columns = x.size(1), block = 512;
  for (int64_t r = 0; r < x.size(0); ++r) {
    const double* in = (const double*)x.data_ptr() + r * columns;
    double* out = (double*)o.data_ptr() + r * columns;
    double before = 0;
    for (int64_t b = 0; b < columns; b += block) {
      double sum = 0;
      for (int64_t i = b; i < std::min(columns, b + block); ++i) out[i] = before + (sum += (float)in[i]);
      before += sum;
    }
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("sums", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
