"""
problem: far_relu
kind: plain
expect: passed
why: Computes what is asked, although zeros would do for most inputs.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const float* a = (const float*)x.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) ((float*)o.data_ptr())[i] = a[i] > 12 ? a[i] - 12 : 0;
}
"""
kernel = tvm_ffi.cpp.load_inline("relu", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
