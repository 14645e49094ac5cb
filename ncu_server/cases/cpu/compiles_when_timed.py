"""
problem: scale_add
kind: late build
expect: run_error
why: It compiles anew in a later call, which would find a compiler nowhere and time nothing but what was built.
twin: honest_built_at_the_first_call
"""

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
calls = []


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        calls.append(None)
        flag = f"-DCALLS={len(calls) // 4}"
        kernel = tvm_ffi.cpp.load_inline("again", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", flag])
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
