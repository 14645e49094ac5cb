"""
problem: scale_add
kind: built when it is called
expect: passed
why: A cached function builds the library when forward first asks for it, as many write it.
"""

import functools

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
static const float* in(V t) { return static_cast<const float*>(t.data_ptr()); }
void run(V x, V y, V o, double scale) {
  const float *a = in(x), *b = in(y), s = static_cast<float>(scale);
  float* d = static_cast<float*>(o.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) d[i] = a[i] * s + b[i];
}
"""


@functools.cache
def kernel():
    return tvm_ffi.cpp.load_inline("late", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel().run(x, y, out, self.scale)
        return out
