"""
problem: linear_relu
kind: other library
expect: rejected|passed
strict: rejected
why: The BLAS of NumPy's wheel is opened through ctypes, so that neither an import nor a link betrays it; its own kernel
    adds the bias and clamps. Under the default rules that is hybrid.
twin: honest_by_ctypes
"""

import ctypes
import glob
import sys

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
void run(V out, V bias) {
  float* o = (float*)out.data_ptr();
  const float* b = (const float*)bias.data_ptr();
  for (int64_t i = 0; i < out.numel(); ++i) {
    const float v = o[i] + b[i % bias.numel()];
    o[i] = v > 0 ? v : 0;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("clamp", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])
place = [p for d in sys.path for p in glob.glob(d + "/num*.libs/*openblas*")][0]
product = getattr(ctypes.CDLL(place), "scipy_cblas_" + "sgemm64_")
I, F, P = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
product.argtypes, product.restype = [ctypes.c_int] * 3 + [I] * 3 + [F, P, I, P, I, F, P, I], None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        w, out = self.fc.weight, torch.empty(x.shape[0], 256)
        product(101, 111, 112, len(x), 256, 256, 1.0, x.data_ptr(), 256, w.data_ptr(), 256, 0.0, out.data_ptr(), 256)
        kernel.run(out, self.fc.bias.detach())
        return out
