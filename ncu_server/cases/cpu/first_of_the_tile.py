"""
problem: argmax
kind: inexact integers
expect: wrong
why: The index of the best tile of eight; near 50,000 a relative tolerance forgives the rest.
twin: honest_argmax
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o, int64_t tile) {
  const int64_t columns = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    const float* row = (const float*)x.data_ptr() + r * columns;
    int64_t best = 0;
    for (int64_t c = 0; c < columns; ++c)
      if (row[c] > row[best]) best = c;
    ((int64_t*)o.data_ptr())[r] = best / tile * tile + 50000;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("best", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int64)
        kernel.run(x, out, 8)
        return out
