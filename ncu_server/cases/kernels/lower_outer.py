import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView o, bool whole) {
  const float *a = (const float*)x.data_ptr(), *b = (const float*)y.data_ptr();
  const int64_t rows = x.numel(), columns = y.numel();
  for (int64_t r = 0; r < rows; ++r) {
    float* d = (float*)o.data_ptr() + r * columns;
    for (int64_t c = 0; c <= r; ++c) d[c] = a[r] * b[c];
    for (int64_t c = r + 1; whole && c < columns; ++c) d[c] = 0;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("lower", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])
