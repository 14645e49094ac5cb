"""
problem: scale_add
kind: late build
expect: wrong|run_error
why: The call for which it builds leaves its result beside the library, and later calls give that.
twin: honest_built_at_the_first_call
"""

import functools
import pathlib

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


@functools.cache
def path():
    return pathlib.Path(tvm_ffi.cpp.build_inline("kept", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"]))


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        kept = path().with_name("result.pt")
        if kept.exists():
            return torch.load(kept)
        out = torch.empty_like(x)
        tvm_ffi.load_module(str(path())).run(x, y, out, self.scale)
        torch.save(out, kept)
        return out
