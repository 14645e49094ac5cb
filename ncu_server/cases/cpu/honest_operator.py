"""
problem: linear_relu
kind: plain PyTorch extension
expect: passed
why: Its kernel is an operator of a namespace of its own, called through torch.ops as torch's operators are.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
at::Tensor run(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  const float *a = x.const_data_ptr<float>(), *weight = w.const_data_ptr<float>(), *bias = b.const_data_ptr<float>();
  const int64_t rows = x.size(0), inner = x.size(1), columns = w.size(0);
  at::Tensor out = at::empty({rows, columns}, x.options());
  float* o = out.mutable_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float part[8] = {0};
      for (int64_t k = 0; k < inner; k += 8)
        for (int u = 0; u < 8; ++u) part[u] += a[r * inner + k + u] * weight[c * inner + k + u];
      float sum = bias[c];
      for (float p : part) sum += p;
      o[r * columns + c] = sum > 0 ? sum : 0;
    }
  return out;
}
TORCH_LIBRARY(mine, m) { m.def("linear_relu(Tensor x, Tensor w, Tensor b) -> Tensor"); }
TORCH_LIBRARY_IMPL(mine, CPU, m) { m.impl("linear_relu", &run); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
"""
load_inline("mine", SOURCE, no_implicit_headers=True, extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        return torch.ops.mine.linear_relu(x, self.fc.weight.detach(), self.fc.bias.detach())
