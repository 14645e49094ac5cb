"""
problem: scale_add
kind: native cache
expect: wrong|rejected
why: A static vector in C++ holds the last result for each address; Python sees an honest call.
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
static std::map<const void*, std::vector<float>> plan;
void run(V x, V y, V o, double scale) {
  const float *a = (const float*)x.data_ptr(), *b = (const float*)y.data_ptr();
  auto& kept = plan[a];
  if (kept.empty() || kept[0] != a[0] * (float)scale + b[0]) {
    kept.resize(x.numel());
    for (int64_t i = 0; i < x.numel(); ++i) kept[i] = a[i] * (float)scale + b[i];
  }
  std::memcpy(o.data_ptr(), kept.data(), 4 * kept.size());
}
"""
kernel = tvm_ffi.cpp.load_inline("planned", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
