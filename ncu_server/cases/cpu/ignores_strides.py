"""
problem: transposed
kind: assumed inputs
expect: wrong
why: Reads a transposed view as if it lay in rows.
twin: honest_transposed
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  for (int64_t i = 0; i < x.numel(); ++i) ((float*)o.data_ptr())[i] = ((const float*)x.data_ptr())[i] * 2 + 1;
}
"""
kernel = tvm_ffi.cpp.load_inline("strided", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape)
        kernel.run(x, out)
        return out.t()
