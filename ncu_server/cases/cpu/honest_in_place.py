"""
problem: in_place
kind: side effects asked
expect: passed
why: Doubles its input where it lies, since the reference does.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
void run(V x, V y, V o) {
  float *a = (float*)x.data_ptr(), *d = (float*)o.data_ptr();
  const float* b = (const float*)y.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) d[i] = (a[i] *= 2) + b[i];
}
"""
kernel = tvm_ffi.cpp.load_inline("doubled", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out)
        return out
