"""
problem: row_variance
kind: subsampling
expect: wrong
why: The variance of every other element of a row is an honest estimate of the row's.
twin: honest_row_variance
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o, int64_t step) {
  const int64_t columns = x.size(1), n = columns / step;
  for (int64_t r = 0; r < x.size(0); ++r) {
    const float* row = (const float*)x.data_ptr() + r * columns;
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < n; ++c) sum += row[c * step];
    for (int64_t c = 0; c < n; ++c) squares += (row[c * step] - sum / n) * (row[c * step] - sum / n);
    ((float*)o.data_ptr())[r] = squares / (n - 1);
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("variance", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0])
        kernel.run(x, out, 2)
        return out
