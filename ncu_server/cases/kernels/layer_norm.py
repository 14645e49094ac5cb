import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
static const float* in(V t) { return static_cast<const float*>(t.data_ptr()); }
static float* out(V t) { return static_cast<float*>(t.data_ptr()); }
void run(V x, V w, V b, V o) {
  const int64_t columns = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    const float* row = in(x) + r * columns;
    double mean = 0, spread = 0;
    for (int64_t c = 0; c < columns; ++c) mean += row[c];
    mean /= columns;
    for (int64_t c = 0; c < columns; ++c) spread += (row[c] - mean) * (row[c] - mean);
    const double k = 1 / std::sqrt(spread / columns + 1e-5);
    for (int64_t c = 0; c < columns; ++c)
      out(o)[r * columns + c] = static_cast<float>((row[c] - mean) * k) * in(w)[c] + in(b)[c];
  }
}
"""
kernel = tvm_ffi.cpp.load_inline(
    "layer_norm", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"]
)
