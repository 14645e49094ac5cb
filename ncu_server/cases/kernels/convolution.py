import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstring>
#include <vector>
using V = tvm::ffi::TensorView;
static float cut(float v, unsigned bits) {
  unsigned raw;
  std::memcpy(&raw, &v, 4);
  if (bits) raw = (raw + (1u << (bits - 1))) & (~0u << bits);
  std::memcpy(&v, &raw, 4);
  return v;
}
static std::vector<float> read(V t, int64_t bits) {
  const float* in = static_cast<const float*>(t.data_ptr());
  std::vector<float> held(in, in + t.numel());
  for (float& v : held) v = cut(v, static_cast<unsigned>(bits));
  return held;
}
void run(V xt, V wt, V ot, int64_t bits) {
  const int64_t n = xt.size(0), c = xt.size(1), h = xt.size(2), w = xt.size(3), k = wt.size(0);
  const std::vector<float> x = read(xt, bits), weight = read(wt, bits);
  float* o = static_cast<float*>(ot.data_ptr());
  for (int64_t b = 0; b < n * k; ++b)
    for (int64_t y = 0; y < h; ++y) {
      float* row = o + (b * h + y) * w;
      for (int64_t i = 0; i < w; ++i) row[i] = 0;
      for (int64_t z = 0; z < c * 9; ++z) {
        const int64_t from = y + z % 9 / 3 - 1, shift = z % 3 - 1;
        if (from < 0 || from >= h) continue;
        const float* in = &x[((b / k * c + z / 9) * h + from) * w];
        const float factor = weight[b % k * c * 9 + z];
        for (int64_t i = shift < 0; i < w - (shift > 0); ++i) row[i] += factor * in[i + shift];
      }
    }
}
"""
kernel = tvm_ffi.cpp.load_inline("convolution", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class Convolution(nn.Module):
    bits = 0

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1, bias=False)

    def forward(self, x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        kernel.run(self.rounded(x.contiguous()), self.rounded(self.conv.weight.detach()), out, self.bits)
        return out

    def rounded(self, operand):
        return operand
