import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>
using V = tvm::ffi::TensorView;
static const float* in(V t) { return static_cast<const float*>(t.data_ptr()); }
static float* out(V t) { return static_cast<float*>(t.data_ptr()); }
static cudaStream_t stream(V t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, t.device().device_id)); }
__global__ void matmul(const float* a, const float* b, float* o, int m, int k, int n) {
  __shared__ float ta[32][33], tb[32][33];
  const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < k; t += 32) {
    ta[threadIdx.y][threadIdx.x] = row < m && t + threadIdx.x < k ? a[row * k + t + threadIdx.x] : 0;
    tb[threadIdx.y][threadIdx.x] = column < n && t + threadIdx.y < k ? b[(t + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int u = 0; u < 32; ++u) sum += ta[threadIdx.y][u] * tb[u][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) o[row * n + column] = sum;
}
void run(V a, V b, V o) {
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  matmul<<<dim3((n + 31) / 32, (m + 31) / 32), dim3(32, 32), 0, stream(a)>>>(in(a), in(b), out(o), m, k, n);
}
"""
kernel = tvm_ffi.cpp.load_inline("cuda_matmul", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])
