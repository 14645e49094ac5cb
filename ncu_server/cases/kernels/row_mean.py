import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
static const float* in(V t) { return static_cast<const float*>(t.data_ptr()); }
static float* out(V t) { return static_cast<float*>(t.data_ptr()); }
void run(V x, V o) {
  const int64_t columns = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += in(x)[r * columns + c];
    out(o)[r] = static_cast<float>(sum / columns);
  }
}
"""
kernel = tvm_ffi.cpp.load_inline(
    "row_mean", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"]
)
