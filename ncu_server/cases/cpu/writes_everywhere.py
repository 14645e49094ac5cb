"""
problem: scale_add
kind: crash
expect: run_error
why: Runs over the end of its output until the process dies.
twin: honest_scale_add
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView o) {
  for (int64_t i = 0;; ++i) ((volatile float*)o.data_ptr())[i] = 1;
}
"""
kernel = tvm_ffi.cpp.load_inline("over", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(out)
        return out
