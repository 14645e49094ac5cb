"""An honest CUDA kernel for SCALE_ADD, and what the server makes of a candidate on CUDA."""

from tests.support.measuring import SCALE_ADD, Server

KERNEL = r"""
#include <cuda_runtime.h>
#include <cstdint>
__global__ void kernel(const float* x, const float* y, const float* b, float* o, float s, int64_t n, int64_t c) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) o[i] = x[i] * s + y[i] + b[i % c];
}
"""

LIGHT = (
    '''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""'''
    + KERNEL
    + '''
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView b, tvm::ffi::TensorView o, double s) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  kernel<<<(x.numel() + 255) / 256, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<const float*>(y.data_ptr()),
      static_cast<const float*>(b.data_ptr()), static_cast<float*>(o.data_ptr()), (float)s, x.numel(), b.numel());
}
"""
built = tvm_ffi.cpp.load_inline("scale_add", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        out = torch.empty_like(x)
        built.run(x, y, self.bias.detach(), out, self.scale)
        return out
'''
)

GELU, POOLING = (
    f'''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>
{kernel}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {{
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  kernel<<<(o.numel() + 255) / 256, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(o.data_ptr()), o.numel());
}}
"""
built = tvm_ffi.cpp.load_inline("{name}", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def forward(self, x):
        out = {out}
        built.run(x, out)
        return out
'''
    for name, out, kernel in (
        (
            "gelu",
            "torch.empty_like(x)",
            """__global__ void kernel(const float* x, float* o, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) o[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}""",
        ),
        (
            "pooling",
            "torch.empty(16, 32, 93, 93, device=x.device)",
            """__global__ void kernel(const float* x, float* o, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float* at = x + i / (93 * 93) * 1024 * 1024 + i / 93 % 93 * 11 * 1024 + i % 93 * 11;
  float sum = 0.0f;
  for (int r = 0; r < 11; ++r)
    for (int c = 0; c < 11; ++c) sum += at[r * 1024 + c];
  o[i] = sum / 121.0f;
}""",
        ),
    )
)
"""Of a tensor, and of 16 x 32 images of 1024 x 1024 by windows of 11 x 11."""


async def status(server: Server, candidate: str, timeout_s: float = 240) -> tuple[str, str]:
    given = {"candidate": candidate, "problem": SCALE_ADD, "target": "cuda", "timeout_s": timeout_s}
    answer = await server.call("evaluate_kernel", **given)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return answer.structured_content["status"], answer.structured_content["log"]
