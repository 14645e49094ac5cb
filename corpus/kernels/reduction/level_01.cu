/* ---
id: kernels/reduction/level_01_cuda
title: Row sums, one block a row, halving in shared memory
archs: [sm_80+]
families: [reduction]
bottlenecks: [latency, sync]
languages: [cuda]
--- */
// The starting point: neighbouring threads read neighbouring elements, then eight barriers halve the block's sums.
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

__global__ void sums(const float* x, float* out, int64_t rows, int64_t columns) {
  const float* row = x + blockIdx.x * columns;
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  const DLDevice device = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  sums<<<static_cast<unsigned>(out.numel()), 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()),
      static_cast<float*>(out.data_ptr()), out.numel(), x.size(1));
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}
