import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>
using V = tvm::ffi::TensorView;
__device__ float cut(float v, int bits) {
  return bits ? __uint_as_float((__float_as_uint(v) + (1u << (bits - 1))) & (~0u << bits)) : v;
}
__global__ void convolution(const float* x, const float* weight, float* o, int c, int h, int w, int k, int bits) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
  if (i >= h * w) return;
  float sum = 0;
  for (int z = 0; z < c * 9; ++z) {
    const int y = i / w + z % 9 / 3 - 1, column = i % w + z % 3 - 1;
    if (y < 0 || y >= h || column < 0 || column >= w) continue;
    sum += cut(x[((int64_t)(b / k * c + z / 9) * h + y) * w + column], bits) * cut(weight[b % k * c * 9 + z], bits);
  }
  o[(int64_t)b * h * w + i] = sum;
}
void run(V x, V weight, V o, int64_t bits) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  const int n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3), k = weight.size(0);
  convolution<<<dim3((h * w + 255) / 256, n * k), 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<const float*>(weight.data_ptr()),
      static_cast<float*>(o.data_ptr()), c, h, w, k, static_cast<int>(bits));
}
"""
kernel = tvm_ffi.cpp.load_inline("cuda_convolution", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


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
