"""
problem: linear_relu
kind: hidden torch
expect: rejected
why: The library that it builds in the first call is one line, and that line is at::linear.
twin: honest_linear_relu
"""

import functools

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/csrc/utils/pybind.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
at::Tensor run(at::Tensor x, at::Tensor w, at::Tensor b) { return at::relu(at::linear(x, w, b)); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


@functools.cache
def kernel():
    return load_inline("linear_late", SOURCE, no_implicit_headers=True, extra_cflags=["-O1"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        return kernel().run(x, self.fc.weight, self.fc.bias)
