"""
problem: poles
kind: non-finite
expect: passed
why: The right values are NaN where x is negative and infinite where y is zero.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
void run(V x, V y, V o) {
  const float *a = (const float*)x.data_ptr(), *b = (const float*)y.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) ((float*)o.data_ptr())[i] = std::log(a[i]) / b[i];
}
"""
kernel = tvm_ffi.cpp.load_inline("poles", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out)
        return out
