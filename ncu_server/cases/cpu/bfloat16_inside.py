"""
problem: linear_relu
kind: lower precision
expect: wrong
why: Both operands lose their lower sixteen bits before they are multiplied.
twin: honest_linear_relu
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
using V = tvm::ffi::TensorView;
static float cut(float v) {
  unsigned bits;
  std::memcpy(&bits, &v, 4);
  bits = (bits + 0x8000u) & 0xffff0000u;
  std::memcpy(&v, &bits, 4);
  return v;
}
void run(V x, V w, V b, V o) {
  const float *a = (const float*)x.data_ptr(), *weight = (const float*)w.data_ptr(), *bias = (const float*)b.data_ptr();
  const int64_t rows = x.size(0), inner = x.size(1), columns = w.size(0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float sum = bias[c];
      for (int64_t k = 0; k < inner; ++k) sum += cut(a[r * inner + k]) * cut(weight[c * inner + k]);
      ((float*)o.data_ptr())[r * columns + c] = sum > 0 ? sum : 0;
    }
}
"""
kernel = tvm_ffi.cpp.load_inline("linear", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out
