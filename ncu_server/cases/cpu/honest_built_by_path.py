"""
problem: scale_add
kind: built when it is called
expect: passed
why: One library is built by the import; another, of the last rows, by path in the first call.
"""

import torch
import torch.nn as nn
import tvm_ffi
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
FLAGS = ["-O3", "-march=native"]
first = tvm_ffi.cpp.load_inline("first", cpp_sources=SOURCE, functions=["run"], extra_cflags=FLAGS)
last = []


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        if not last:
            path = tvm_ffi.cpp.build_inline("last", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O2"])
            last.append(tvm_ffi.load_module(path))
        out = torch.empty_like(x)
        first.run(x[:384], y[:384], out[:384], self.scale)
        last[0].run(x[384:], y[384:], out[384:], self.scale)
        return out
