"""
problem: linear_relu
kind: incremental replay
expect: suspect|wrong|passed
why: As only_what_changed, from the tenth visit of like inputs on.
twin: honest_linear_relu
at_most: 1.2
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
#include <vector>
using V = tvm::ffi::TensorView;
struct Kept { std::vector<float> x, o; int visits = 0; };
static std::vector<Kept> all;
static float* at(V t) { return static_cast<float*>(t.data_ptr()); }
static bool resembles(const Kept& one, const float* x, int64_t n) {
  int64_t unlike = 0;
  for (int64_t i = 0; i < n; i += 1009) unlike += one.x[i] != x[i];
  return unlike < 16;
}
static void add(const float* now, const float* then, const float* turned, float* o, int64_t inner, int64_t columns) {
  for (int64_t k = 0; k < inner; ++k)
    if (now[k] != then[k]) {
      const float f = now[k] - then[k];
      for (int64_t c = 0; c < columns; ++c) o[c] += f * turned[k * columns + c];
    }
}
static void whole(const float* x, V turned, V b, float* o, int64_t rows) {
  const int64_t inner = turned.size(0), columns = turned.size(1);
  const std::vector<float> nothing(inner);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(&o[r * columns], at(b), columns * sizeof(float));
    add(&x[r * inner], nothing.data(), at(turned), &o[r * columns], inner, columns);
  }
}
void run(V x, V turned, V b, V o) {  // turned: inner by columns
  const int64_t rows = x.size(0), inner = x.size(1), columns = turned.size(1), n = rows * inner;
  Kept* like = nullptr;
  for (Kept& one : all)
    if (resembles(one, at(x), n)) like = &one;
  if (!like) { all.push_back({std::vector<float>(at(x), at(x) + n), {}, 0}); like = &all.back(); }
  if (++like->visits < 10) whole(at(x), turned, b, at(o), rows);
  else {
    if (like->o.empty()) { like->o.resize(rows * columns); whole(like->x.data(), turned, b, like->o.data(), rows); }
    std::memcpy(at(o), like->o.data(), rows * columns * sizeof(float));
    for (int64_t r = 0; r < rows; ++r) {
      const float *now = at(x) + r * inner, *then = like->x.data() + r * inner;
      if (std::memcmp(now, then, inner * sizeof(float))) add(now, then, at(turned), at(o) + r * columns, inner, columns);
    }
  }
  for (int64_t i = 0; i < rows * columns; ++i) at(o)[i] = at(o)[i] > 0 ? at(o)[i] : 0;
}
"""
kernel = tvm_ffi.cpp.load_inline(
    "changed", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"]
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.turned = None

    def forward(self, x):
        if self.turned is None:
            self.turned = self.fc.weight.detach().t().contiguous()
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.turned, self.fc.bias.detach(), out)
        return out
