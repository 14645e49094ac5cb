"""
problem: class_loss
kind: memoised constants
expect: passed
why: lru_cache for a constant of the shape; labels stay integers; the result has no dimensions.
"""

import functools

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
void run(V x, V labels, V o, double scale) {
  const int64_t columns = x.size(1);
  double total = 0;
  for (int64_t r = 0; r < x.size(0); ++r) {
    const float* row = (const float*)x.data_ptr() + r * columns;
    float most = row[0];
    for (int64_t c = 1; c < columns; ++c) most = row[c] > most ? row[c] : most;
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += std::exp((double)row[c] - most);
    total += std::log(sum) + most - row[((const int64_t*)labels.data_ptr())[r]];
  }
  *(float*)o.data_ptr() = total * scale;
}
"""
kernel = tvm_ffi.cpp.load_inline("loss", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


@functools.lru_cache(maxsize=None)
def scale(rows):
    return 1.0 / rows


class ModelNew(nn.Module):
    def forward(self, x, labels):
        out = torch.empty(())
        kernel.run(x, labels, out, scale(x.shape[0]))
        return out
