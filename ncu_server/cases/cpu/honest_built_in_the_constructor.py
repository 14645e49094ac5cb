"""
problem: scale_add
kind: built when it is called
expect: passed
why: A getter of a module's variable builds torch's own extension when the constructor first asks for it.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void run(uintptr_t x, uintptr_t y, uintptr_t o, double s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) ((float*)o)[i] = ((float*)x)[i] * (float)s + ((float*)y)[i];
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
_ext = None


def extension():
    global _ext
    if _ext is None:
        _ext = load_inline("late_pybind", SOURCE, no_implicit_headers=True, extra_cflags=["-O3"])
    return _ext


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.kernel = extension()

    def forward(self, x, y):
        out = torch.empty_like(x)
        self.kernel.run(x.data_ptr(), y.data_ptr(), out.data_ptr(), self.scale, x.numel())
        return out
