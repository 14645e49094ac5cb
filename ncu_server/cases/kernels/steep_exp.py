import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
using V = tvm::ffi::TensorView;
void run(V x, V o, double least) {  // two to the power of four times x over the logarithm of two, rounded on the way
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(o.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] < (float)least ? 0.f : std::exp2(from[i] * 5.7707802f);
}
"""
kernel = tvm_ffi.cpp.load_inline("steep_exp", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])
