import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
using V = tvm::ffi::TensorView;
static float cut(float v, unsigned bits) {
  unsigned raw;
  std::memcpy(&raw, &v, 4);
  if (bits) raw = (raw + (1u << (bits - 1))) & (~0u << bits);
  std::memcpy(&v, &raw, 4);
  return v;
}
void run(V x, V o, int64_t bits) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const float* in = static_cast<const float*>(x.data_ptr());
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += cut(in[r * columns + c], static_cast<unsigned>(bits));
    static_cast<float*>(o.data_ptr())[r] = sum;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("long_sums", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class Sums(nn.Module):
    bits = 0

    def forward(self, x):
        out = torch.empty(x.shape[0])
        kernel.run(self.rounded(x.contiguous()), out, self.bits)
        return out

    def rounded(self, x):
        return x
