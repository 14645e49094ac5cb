"""
problem: matmul
kind: constant
expect: wrong
why: A product of uniform numbers over 2,048 terms is 512 give or take a few, so 512 it is.
twin: honest_matmul
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView o, double value) {
  for (int64_t i = 0; i < o.numel(); ++i) ((float*)o.data_ptr())[i] = (float)value;
}
"""
kernel = tvm_ffi.cpp.load_inline("filled", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1])
        kernel.run(out, a.shape[1] / 4)
        return out
