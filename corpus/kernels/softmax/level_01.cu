/* ---
id: kernels/softmax/level_01_cuda
title: Online softmax, one block a row, two reads of it
archs: [sm_80+]
families: [softmax]
bottlenecks: [dram-bw, sync]
languages: [cuda]
--- */
// One idea: maximum and sum in one read. A thread that meets a larger maximum rescales the sum it has, and two threads' pairs combine
// the same way, so a row too long for registers is read twice instead of three times.
#include <cmath>
#include <cstdint>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

__global__ void softmax(const float* x, float* out, int64_t n, int64_t columns) {
  __shared__ float tops[256], sums[256];
  const float* row = x + blockIdx.x * columns;
  float top = -INFINITY, sum = 0.0f;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const float higher = fmaxf(top, row[c]);
    sum = higher == -INFINITY ? 0.0f : sum * expf(top - higher) + expf(row[c] - higher);
    top = higher;
  }
  tops[threadIdx.x] = top;
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (threadIdx.x < d) {
      const float mine = tops[threadIdx.x], other = tops[threadIdx.x + d], higher = fmaxf(mine, other);
      const float a = mine == -INFINITY ? 0.0f : sums[threadIdx.x] * expf(mine - higher);
      const float b = other == -INFINITY ? 0.0f : sums[threadIdx.x + d] * expf(other - higher);
      tops[threadIdx.x] = higher;
      sums[threadIdx.x] = a + b;
    }
    __syncthreads();
  }
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) out[blockIdx.x * columns + c] = expf(row[c] - tops[0]) / sums[0];
}

}  // namespace

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  const DLDevice device = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  softmax<<<static_cast<unsigned>(x.size(0)), 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()),
      static_cast<float*>(out.data_ptr()), out.numel(), x.size(1));
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}
