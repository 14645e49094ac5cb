"""
problem: linear_relu
kind: packed weights
expect: passed
why: The weights are transposed once in the constructor and kept under another name.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
void run(V x, V packed, V o) {  // packed: (inner + 1, columns), the bias last
  const float *a = (const float*)x.data_ptr(), *p = (const float*)packed.data_ptr();
  const int64_t rows = x.size(0), inner = x.size(1), columns = packed.size(1);
  for (int64_t r = 0; r < rows; ++r) {
    float* d = (float*)o.data_ptr() + r * columns;
    for (int64_t c = 0; c < columns; ++c) d[c] = p[inner * columns + c];
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t c = 0; c < columns; ++c) d[c] += a[r * inner + k] * p[k * columns + c];
    for (int64_t c = 0; c < columns; ++c) d[c] = d[c] > 0 ? d[c] : 0;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("packed", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        fc = nn.Linear(256, 256)
        self.packed = torch.cat([fc.weight.detach().t(), fc.bias.detach()[None]]).contiguous()

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.packed, out)
        return out
