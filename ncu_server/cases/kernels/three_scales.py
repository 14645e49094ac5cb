import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
void run(V x, V o, bool small) {
  const int64_t rows = x.size(0), columns = x.size(1);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = static_cast<const float*>(x.data_ptr()) + r * columns;
    float* to = static_cast<float*>(o.data_ptr()) + r * 3 * columns;
    for (int64_t c = 0; c < columns; ++c) {
      to[c] = small ? std::sin(from[c]) : 0.f;
      to[columns + c] = small ? std::cos(from[c]) : 0.f;
      to[2 * columns + c] = 1e6f * from[c];
    }
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("three_scales", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])
