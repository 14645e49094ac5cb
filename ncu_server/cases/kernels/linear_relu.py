import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
static const float* in(V t) { return static_cast<const float*>(t.data_ptr()); }
static float* out(V t) { return static_cast<float*>(t.data_ptr()); }
void run(V x, V w, V b, V o) {  // eight partial sums a dot product, so that the loop becomes vectors
  const float *a = in(x), *weight = in(w), *bias = in(b);
  const int64_t rows = x.size(0), inner = x.size(1), columns = w.size(0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float part[8] = {0};
      for (int64_t k = 0; k < inner; k += 8)
        for (int u = 0; u < 8; ++u) part[u] += a[r * inner + k + u] * weight[c * inner + k + u];
      float sum = bias[c];
      for (float p : part) sum += p;
      out(o)[r * columns + c] = sum > 0 ? sum : 0;
    }
}
"""
kernel = tvm_ffi.cpp.load_inline(
    "linear_relu", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"]
)
