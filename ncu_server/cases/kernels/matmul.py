import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
static const float* in(V t) { return static_cast<const float*>(t.data_ptr()); }
static float* out(V t) { return static_cast<float*>(t.data_ptr()); }
void run(V a, V b, V o) {
  const int64_t rows = a.size(0), inner = a.size(1), columns = b.size(1);
  float* d = out(o);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) d[r * columns + c] = 0;
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t c = 0; c < columns; ++c) d[r * columns + c] += in(a)[r * inner + k] * in(b)[k * columns + c];
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("matmul", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"])
