import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView o, bool multiplies) {
  const float *a = (const float*)x.data_ptr(), *b = (const float*)y.data_ptr();
  float* d = (float*)o.data_ptr();
  for (int64_t i = 0, n = x.numel(); i < n; ++i) d[i] = multiplies ? a[i] * b[i] : a[i] + b[i];
}
"""
kernel = tvm_ffi.cpp.load_inline("flagged", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])
