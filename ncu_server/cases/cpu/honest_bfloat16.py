"""
problem: bfloat16_linear
kind: lower precision asked
expect: passed
why: The problem is in bfloat16; the kernel widens, adds in float32 and rounds once.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstdint>
#include <cstring>
using V = tvm::ffi::TensorView;
static float wide(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}
static uint16_t narrow(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
void run(V x, V w, V o) {
  const uint16_t *a = (const uint16_t*)x.data_ptr(), *weight = (const uint16_t*)w.data_ptr();
  const int64_t rows = x.size(0), inner = x.size(1), columns = w.size(0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += wide(a[r * inner + k]) * wide(weight[c * inner + k]);
      ((uint16_t*)o.data_ptr())[r * columns + c] = narrow(sum);
    }
}
"""
kernel = tvm_ffi.cpp.load_inline("bf16", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128, 512).bfloat16())

    def forward(self, x):
        out = torch.empty(x.shape[0], 128, dtype=torch.bfloat16)
        kernel.run(x, self.weight.detach(), out)
        return out
