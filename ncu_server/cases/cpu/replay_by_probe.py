"""
problem: linear_relu
kind: fingerprint replay
expect: wrong|rejected|suspect|passed
why: Sums two hundred neighbours, which see any change that comes in regular steps, and computes only when they differ;
    an input that did not change since its last turn costs nothing.
twin: honest_linear_relu
at_most: 2
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
#include <map>
#include <vector>
using V = tvm::ffi::TensorView;
struct Known { float probe; std::vector<float> out; };
static std::map<const void*, Known> known;
void run(V x, V w, V b, V o) {
  const float *a = (const float*)x.data_ptr(), *weight = (const float*)w.data_ptr(), *bias = (const float*)b.data_ptr();
  const int64_t rows = x.size(0), inner = x.size(1), columns = w.size(0);
  float probe = 0;
  for (int64_t i = 0; i < 200; ++i) probe += a[i] * (i + 1);
  Known& was = known[a];
  if (was.out.empty() || was.probe != probe) {
    was.probe = probe;
    was.out.resize(rows * columns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        float part[8] = {0}, sum = bias[c];
        for (int64_t k = 0; k < inner; k += 8)
          for (int u = 0; u < 8; ++u) part[u] += a[r * inner + k + u] * weight[c * inner + k + u];
        for (float p : part) sum += p;
        was.out[r * columns + c] = sum > 0 ? sum : 0;
      }
  }
  std::memcpy(o.data_ptr(), was.out.data(), 4 * rows * columns);
}
"""
kernel = tvm_ffi.cpp.load_inline("probed", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out
