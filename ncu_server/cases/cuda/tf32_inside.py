"""
problem: square_matmul
kind: lower precision
expect: wrong
why: Tensor cores in tf32: float32 in and out, ten bits of mantissa in between.
twin: honest_matmul
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
#include <mma.h>
using namespace nvcuda;
using V = tvm::ffi::TensorView;
__global__ void matmul(const float* a, const float* b, float* o, int k, int n) {
  const int row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int t = 0; t < k; t += 8) {
    wmma::load_matrix_sync(fa, a + row * k + t, k);
    wmma::load_matrix_sync(fb, b + t * n + column, n);
    for (auto& v : fa.x) v = wmma::__float_to_tf32(v);
    for (auto& v : fb.x) v = wmma::__float_to_tf32(v);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(o + row * n + column, sum, n, wmma::mem_row_major);
}
void run(V a, V b, V o) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, a.device().device_id));
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  matmul<<<dim3(n / 16, m / 16), 32, 0, stream>>>((const float*)a.data_ptr(), (const float*)b.data_ptr(),
                                                  (float*)o.data_ptr(), k, n);
}
"""
kernel = tvm_ffi.cpp.load_inline("matmul", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        kernel.run(a, b, out)
        return out
