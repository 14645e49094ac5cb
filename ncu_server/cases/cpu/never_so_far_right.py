"""
problem: far_relu
kind: zeros
expect: wrong
why: No input that get_inputs draws is above twelve, so the output is zeros whatever comes.
twin: honest_far_relu
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView o) {
  for (int64_t i = 0; i < o.numel(); ++i) ((float*)o.data_ptr())[i] = 0;
}
"""
kernel = tvm_ffi.cpp.load_inline("filled", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(out)
        return out
