"""
problem: running_mean
kind: side effects asked
expect: passed
why: Keeps a running mean and subtracts it, as the reference does; after unlike many calls the two means would differ.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView mean, tvm::ffi::TensorView out) {
  const float* a = (const float*)x.data_ptr();
  float *m = (float*)mean.data_ptr(), *o = (float*)out.data_ptr();
  const int64_t rows = x.size(0), cols = x.size(1);
  for (int64_t c = 0; c < cols; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += a[r * cols + c];
    m[c] = 0.9f * m[c] + 0.1f * (float)(sum / rows);
  }
  for (int64_t i = 0; i < rows * cols; ++i) o[i] = a[i] - m[i % cols];
}
"""
kernel = tvm_ffi.cpp.load_inline("running", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))

    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, self.mean, out)
        return out
