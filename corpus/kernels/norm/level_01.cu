/* ---
id: kernels/norm/level_01_cuda
title: Layer norm, one block a row, three reads of it
archs: [sm_80+]
families: [norm]
bottlenecks: [latency, sync]
languages: [cuda]
--- */
// The starting point: mean, variance and result each read the row again, the later two from the caches at best.
#include <cmath>
#include <cstdint>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

// The sum over a block's 256 threads, by halving in shared memory; every thread gets it.
__device__ float block_sum(float x) {
  __shared__ float area[256];
  area[threadIdx.x] = x;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (threadIdx.x < d) area[threadIdx.x] += area[threadIdx.x + d];
    __syncthreads();
  }
  const float sum = area[0];
  __syncthreads();
  return sum;
}

__global__ void norm(const float* x, const float* weight, const float* bias, float* out, int64_t n, int64_t columns) {
  const float* row = x + blockIdx.x * columns;
  float sum = 0.0f, squares = 0.0f;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
  const float mean = block_sum(sum) / columns;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) squares += (row[c] - mean) * (row[c] - mean);
  const float scale = rsqrtf(block_sum(squares) / columns + 1e-5f);
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) out[blockIdx.x * columns + c] = (row[c] - mean) * scale * weight[c] + bias[c];
}

}  // namespace

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView bias, tvm::ffi::TensorView out) {
  const DLDevice device = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  norm<<<static_cast<unsigned>(x.size(0)), 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()),
      static_cast<const float*>(weight.data_ptr()),
      static_cast<const float*>(bias.data_ptr()),
      static_cast<float*>(out.data_ptr()), out.numel(), x.size(1));
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}
