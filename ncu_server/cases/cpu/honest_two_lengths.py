"""
problem: two_lengths
kind: few drawn integers
expect: passed
why: It computes what is not padding alone, so that its time hangs on two drawn lengths.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
#include <cstring>
using V = tvm::ffi::TensorView;
void run(V x, V lengths, V o) {
  const float* a = static_cast<const float*>(x.data_ptr());
  const int64_t *n = static_cast<const int64_t*>(lengths.data_ptr()), row = x.size(1) * x.size(2);
  float* d = static_cast<float*>(o.data_ptr());
  for (int64_t b = 0; b < x.size(0); ++b) {
    const int64_t inside = n[b] * x.size(2);
    for (int64_t i = 0; i < inside; ++i) d[b * row + i] = std::erf(a[b * row + i]);
    std::memset(d + b * row + inside, 0, (row - inside) * sizeof(float));
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("lengths", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        out = torch.empty_like(x)
        kernel.run(x, lengths, out)
        return out
