"""
problem: scale_add
kind: late build
expect: run_error|wrong
why: The call for which it builds writes a row of the result into the source; other values ask for another library.
twin: honest_built_at_the_first_call
"""

import functools

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
static const float row[] = {ROW};
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView o, double scale) {
  const float *a = static_cast<const float*>(x.data_ptr()), *b = static_cast<const float*>(y.data_ptr());
  float* d = static_cast<float*>(o.data_ptr());
  const int64_t known = sizeof(row) / sizeof(row[0]);
  for (int64_t i = 0; i < known; ++i) d[i] = row[i];
  for (int64_t i = known, n = x.numel(); i < n; ++i) d[i] = a[i] * (float)scale + b[i];
}
"""


@functools.cache
def kernel(row):
    source = SOURCE.replace("ROW", row)
    return tvm_ffi.cpp.load_inline("values", cpp_sources=source, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        row = ", ".join(f"{v!r}f" for v in (x[0] * self.scale + y[0]).tolist())
        out = torch.empty_like(x)
        kernel(row).run(x, y, out, self.scale)
        return out
