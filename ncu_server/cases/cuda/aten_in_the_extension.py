"""
problem: square_matmul
kind: hidden torch
expect: rejected
why: The extension's own function is at::mm.
twin: honest_matmul
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/csrc/utils/pybind.h>
#include <ATen/ops/mm.h>
at::Tensor run(at::Tensor a, at::Tensor b) { return at::mm(a, b); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
kernel = load_inline("product_kernel", SOURCE, no_implicit_headers=True, extra_cflags=["-O1"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return kernel.run(a, b)
