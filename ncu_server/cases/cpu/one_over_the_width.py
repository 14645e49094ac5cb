"""
problem: mean_of_softmax
kind: constant
expect: wrong|rejected
why: The mean of a softmax is one over the width; nothing is read.
twin: honest_mean_of_softmax
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
    def forward(self, x):
        out = torch.empty(x.shape[0])
        kernel.run(out, 1 / x.shape[1])
        return out
