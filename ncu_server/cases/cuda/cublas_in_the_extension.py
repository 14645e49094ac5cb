"""
problem: square_matmul
kind: other library
expect: rejected
why: The library calls cublasSgemm through the dynamic linker; no import and no link names it.
twin: honest_matmul
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
#include <dlfcn.h>
using V = tvm::ffi::TensorView;
typedef int (*Create)(void**);
typedef int (*SetStream)(void*, cudaStream_t);
typedef int (*Gemm)(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*,
                    float*, int);
static void* find(const char* name) {
  static void* library = nullptr;
  for (const char* file : {"libcublas.so.13", "libcublas.so.12"})
    if (!library) library = dlopen(file, RTLD_NOW);
  return library ? dlsym(library, name) : nullptr;
}
void run(V a, V b, V o) {
  static void* handle = nullptr;
  if (!handle) ((Create)find("cublasCreate_v2"))(&handle);
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, a.device().device_id));
  ((SetStream)find("cublasSetStream_v2"))(handle, stream);
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  const float one = 1, zero = 0;
  ((Gemm)find("cublasSgemm_v2"))(handle, 0, 0, n, m, k, &one, (const float*)b.data_ptr(), n, (const float*)a.data_ptr(),
                                 k, &zero, (float*)o.data_ptr(), n);
}
"""
kernel = tvm_ffi.cpp.load_inline("product", cuda_sources=SOURCE, functions=["run"], extra_ldflags=["-ldl"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        kernel.run(a, b, out)
        return out
