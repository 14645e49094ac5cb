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
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t columns = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    unsigned sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += (unsigned)((const int64_t*)x.data_ptr())[r * columns + c];
    ((int64_t*)o.data_ptr())[r] = sum;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("sums", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int64)
        kernel.run(x, out)
        return out
