import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
static float* at(V t) { return static_cast<float*>(t.data_ptr()); }
void run(V x, V mean, V var, V o, int64_t columns) {
  const int64_t rows = x.size(0), width = x.size(1);
  const float* a = at(x);
  double sum[128] = {0}, squares[128] = {0};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) sum[c] += a[r * width + c];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const double d = a[r * width + c] - sum[c] / rows;
      squares[c] += d * d;
    }
  float scale[128];
  for (int64_t c = 0; c < columns; ++c) {
    at(mean)[c] = sum[c] / rows;
    at(var)[c] = squares[c] / (rows - 1);
    scale[c] = 1 / std::sqrt(squares[c] / (rows - 1) + 1e-5);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) at(o)[r * width + c] = (a[r * width + c] - at(mean)[c]) * scale[c];
}
"""
kernel = tvm_ffi.cpp.load_inline(
    "statistics", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"]
)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(128))
        self.register_buffer("var", torch.ones(128))
        self.register_buffer("steps", torch.tensor(0))

    def advance(self, mean, var):
        self.mean.mul_(0.9).add_(mean, alpha=0.1)
        self.var.mul_(0.9).add_(var, alpha=0.1)
        self.steps.add_(1)
