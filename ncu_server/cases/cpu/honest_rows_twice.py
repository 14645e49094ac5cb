"""
problem: rows_twice
kind: plain
expect: passed
why: Moves the data itself.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  const int64_t rows = x.size(0), row = x.size(1) * sizeof(float);
  for (int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < 2; ++i) std::memcpy((char*)out.data_ptr() + (2 * r + i) * row, (char*)x.data_ptr() + r * row, row);
}
"""
kernel = tvm_ffi.cpp.load_inline("twice", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(2 * x.shape[0], x.shape[1])
        kernel.run(x.contiguous(), out)
        return out
