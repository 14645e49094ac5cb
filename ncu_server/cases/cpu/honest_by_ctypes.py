"""
problem: linear_relu
kind: alarming words
expect: passed
why: Its kernel is called through ctypes, in the library that load_inline has built, by that library's path.
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
extern "C" void linear_relu(const float* a, const float* weight, const float* bias, float* o, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < 256; ++c) {
      float part[8] = {0};
      for (int64_t k = 0; k < 256; k += 8)
        for (int u = 0; u < 8; ++u) part[u] += a[r * 256 + k + u] * weight[c * 256 + k + u];
      float sum = bias[c];
      for (float p : part) sum += p;
      o[r * 256 + c] = sum > 0 ? sum : 0;
    }
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}
"""
built = load_inline("by_ctypes", SOURCE, no_implicit_headers=True, extra_cflags=["-O3", "-march=native"])
run = ctypes.CDLL(built.__file__).linear_relu
run.argtypes, run.restype = [ctypes.c_void_p] * 4 + [ctypes.c_int64], None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        run(x.data_ptr(), self.fc.weight.data_ptr(), self.fc.bias.data_ptr(), out.data_ptr(), x.shape[0])
        return out
