"""
problem: poles
kind: shape lies
expect: wrong
why: NaN everywhere, for a judge who takes a NaN in either place for agreement.
twin: honest_poles
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView o) {
  for (int64_t i = 0; i < o.numel(); ++i) ((float*)o.data_ptr())[i] = 0.0f / 0.0f;
}
"""
kernel = tvm_ffi.cpp.load_inline("filled", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(out)
        return out
