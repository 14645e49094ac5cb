"""
problem: transposed
kind: views
expect: passed
why: Its input is a view, its output is a view of storage that lies the other way round than the reference's.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t rows = x.size(0), columns = x.size(1), sr = x.stride(0), sc = x.stride(1);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      ((float*)o.data_ptr())[r * columns + c] = ((const float*)x.data_ptr())[r * sr + c * sc] * 2 + 1;
}
"""
kernel = tvm_ffi.cpp.load_inline("strided", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        room = torch.empty(x.shape[0] + 1, x.shape[1])
        kernel.run(x, room[1:])
        return room[1:].t()
