"""
problem: wide_softmax
kind: assumed inputs
expect: wrong
why: Takes no maximum off before the exponential, which overflows from 88 on; get_inputs draws nothing so large.
twin: honest_softmax
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(o.data_ptr());
  const int64_t n = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r, from += n, to += n) {
    double sum = 0;
    for (int64_t c = 0; c < n; ++c) sum += to[c] = std::exp(from[c]);
    const float by = static_cast<float>(1 / sum);
    for (int64_t c = 0; c < n; ++c) to[c] *= by;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("softmax", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
