"""
problem: float32_average
kind: lower precision
expect: wrong
why: Reads the upper halves, bfloat16, of what the reference asks float32 for.
twin: honest_average
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
static float cut(float v) {
  unsigned bits;
  std::memcpy(&bits, &v, 4);
  bits &= 0xffff0000u;
  std::memcpy(&v, &bits, 4);
  return v;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t steps = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    double held = 0;
    for (int64_t i = r * steps; i < (r + 1) * steps; ++i) {
      held = 0.999 * held + cut(((const float*)x.data_ptr())[i]);
      ((float*)o.data_ptr())[i] = (float)held;
    }
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("average", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
