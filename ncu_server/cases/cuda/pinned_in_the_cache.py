"""
problem: wide_scale_add
kind: persisting cache
expect: passed|suspect|rejected
why: Sets most of the L2 aside and pins the inputs in it, where a flush does not reach them.
twin: honest_scale_add
at_most: 2.4
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
using V = tvm::ffi::TensorView;
__global__ void scale_add(const float* x, const float* y, float* o, float s, int64_t n) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) __stcs(o + i, x[i] * s + y[i]);
}
static void pin(cudaStream_t stream, const void* at, size_t bytes) {
  int most = 0;
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxAccessPolicyWindowSize, 0);
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = (void*)at;
  value.accessPolicyWindow.num_bytes = bytes < (size_t)most ? bytes : most;
  value.accessPolicyWindow.hitRatio = 1;
  value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value);
}
void run(V x, V y, V o, double s) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  static bool first = true;
  if (first) {
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, 0);
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, most);
    first = false;
  }
  pin(stream, x.data_ptr(), 4 * x.numel());
  const int64_t n = x.numel();
  scale_add<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)y.data_ptr(),
                                                 (float*)o.data_ptr(), (float)s, n);
}
"""
kernel = tvm_ffi.cpp.load_inline("pinned", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
