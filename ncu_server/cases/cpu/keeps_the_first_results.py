"""
problem: scale_add
kind: fingerprint replay
expect: wrong
why: The first six results are kept by the first element of the input, and nothing later is, so that no timed call gets
    an earlier result.
twin: honest_scale_add
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
#include <map>
#include <vector>
using V = tvm::ffi::TensorView;
static std::map<float, std::vector<float>> kept;
void run(V x, V y, V o, double scale) {
  const float *a = (const float*)x.data_ptr(), *b = (const float*)y.data_ptr(), by = (float)scale;
  float* d = (float*)o.data_ptr();
  const int64_t n = x.numel();
  auto known = kept.find(a[0]);
  if (known != kept.end()) {
    std::memcpy(d, known->second.data(), 4 * n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) d[i] = a[i] * by + b[i];
  if (kept.size() < 6) kept[a[0]] = std::vector<float>(d, d + n);
}
"""
kernel = tvm_ffi.cpp.load_inline("first", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
