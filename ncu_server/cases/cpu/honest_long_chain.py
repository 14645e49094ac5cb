"""
problem: long_chain
kind: far faster
expect: passed
why: One pass instead of twenty-four and no branch that nobody reads: far more than ten times, and honest.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    float v = ((const float*)x.data_ptr())[i];
    for (int s = 0; s < 24; ++s) v = v * 0.9f + 0.1f;
    ((float*)o.data_ptr())[i] = v < -2 ? -2 : v > 2 ? 2 : v;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("chain", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
