"""
problem: relu_in_place
kind: side effects asked
expect: passed
why: Its output is its input, changed where it lies, since the reference's is.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x) {
  float* a = (float*)x.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) a[i] = a[i] < 0 ? 0 : a[i];
}
"""
kernel = tvm_ffi.cpp.load_inline("relu", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        kernel.run(x)
        return x
