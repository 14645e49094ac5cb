"""
problem: in_place
kind: phase replay
expect: wrong
why: Doubles its input in the calls that are checked, and in later ones returns the right sum without.
twin: honest_in_place
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out, bool writes) {
  float *a = (float*)x.data_ptr(), *o = (float*)out.data_ptr();
  const float* b = (const float*)y.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) {
    o[i] = 2 * a[i] + b[i];
    if (writes) a[i] *= 2;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("sometimes", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.calls <= 12)
        return out
