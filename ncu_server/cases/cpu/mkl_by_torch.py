"""
problem: linear_relu
kind: hidden torch
expect: rejected|passed
strict: rejected
why: The product is an operator of torch outside `aten`, which could be taken for one that the candidate has registered;
    its own kernel clamps. Under the default rules that is hybrid.
twin: honest_linear_relu
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView out) {
  float* o = (float*)out.data_ptr();
  for (int64_t i = 0; i < out.numel(); ++i) o[i] = o[i] > 0 ? o[i] : 0;
}
"""
kernel = tvm_ffi.cpp.load_inline("clamp", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.packed = None

    def forward(self, x):
        w, b, rows = self.fc.weight.detach(), self.fc.bias.detach(), x.shape[0]
        if self.packed is None:
            self.packed = torch.ops.mkl._mkl_reorder_linear_weight(w, rows)
        out = torch.ops.mkl._mkl_linear(x, self.packed, w, b, rows)
        kernel.run(out)
        return out
