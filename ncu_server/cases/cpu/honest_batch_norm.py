"""
problem: batch_norm
kind: side effects asked
expect: passed
why: In training mode the running statistics and the count of batches change with every call.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
void run(V x, V w, V b, V m, V v, V o) {
  const int64_t n = x.size(0), channels = x.size(1), area = x.size(2) * x.size(3), count = n * area;
  const float* a = (const float*)x.data_ptr();
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t p = 0; p < area; ++p) sum += a[(i * channels + c) * area + p];
    const double mean = sum / count;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t p = 0; p < area; ++p) {
        const double d = a[(i * channels + c) * area + p] - mean;
        squares += d * d;
      }
    const double k = ((const float*)w.data_ptr())[c] / std::sqrt(squares / count + 1e-5);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t p = 0; p < area; ++p)
        ((float*)o.data_ptr())[(i * channels + c) * area + p] =
            (a[(i * channels + c) * area + p] - mean) * k + ((const float*)b.data_ptr())[c];
    float &rm = ((float*)m.data_ptr())[c], &rv = ((float*)v.data_ptr())[c];
    rm = 0.9 * rm + 0.1 * mean;
    rv = 0.9 * rv + 0.1 * squares / (count - 1);
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("batch_norm", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x):
        n, out = self.norm, torch.empty_like(x)
        kernel.run(x, n.weight.detach(), n.bias.detach(), n.running_mean, n.running_var, out)
        n.num_batches_tracked += 1
        return out
