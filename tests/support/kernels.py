"""CUDA for the tests that compile it: a small kernel, one that spills, one that does not compile, a candidate."""

SPILLS = """
template <typename T> __global__ void axpy(const T* __restrict__ x, T* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
template __global__ void axpy<float>(const float*, float*, float, int);

extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* p) {
  __shared__ float s[256];
  float v[64];
  for (int i = 0; i < 64; ++i) v[i] = p[i * 1024 + threadIdx.x];
  s[threadIdx.x & 255] = v[3];
  __syncthreads();
  for (int r = 0; r < 8; ++r)
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i * 7 + 3) & 63] + s[i];
  for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = v[i];
}
"""
TENSOR = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void product(const half* a, const half* b, float* c, const float4* __restrict__ d, float4* e) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, a, 16);
  wmma::load_matrix_sync(y, b, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
  e[threadIdx.x] = d[threadIdx.x];
  c[256 + threadIdx.x] = __expf(c[threadIdx.x]);
}
"""
BROKEN = """
__global__ void f(float* x) {
  x[0] = missing;
  int never_used;
  float z = "text";
}
"""
CANDIDATE = '''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
__global__ void scale_add(const float* x, const float* y, const float* b, float* o, float s, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m) o[i] = x[i] * s + y[i] + b[i % n];
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView b, tvm::ffi::TensorView o, double s) {
  int m = x.numel(), n = b.numel();
  const float *p = (const float*)x.data_ptr(), *q = (const float*)y.data_ptr(), *r = (const float*)b.data_ptr();
  scale_add<<<(m + 255) / 256, 256>>>(p, q, r, (float*)o.data_ptr(), (float)s, n, m);
}
"""
kernel = tvm_ffi.cpp.load_inline("scale_add", cuda_sources=SOURCE, functions=["run"])

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, self.bias.detach(), out, self.scale)
        return out
'''
