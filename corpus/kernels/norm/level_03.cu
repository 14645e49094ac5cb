/* ---
id: kernels/norm/level_03_cuda
title: A whole tensor by its root mean square in one launch, persistent blocks that wait for one another
archs: [sm_80+]
families: [norm, reduction]
bottlenecks: [dram-bw, launch, sync]
languages: [cuda]
--- */
// One idea: the second pass finds its elements where the first left them. All blocks are resident, each keeps its part in registers
// and shared memory while all sums meet; then it writes. Blocks wait for a ticket: each draws the next number of a counter that only
// rises, and waits until all numbers of its own round are drawn, so nothing is reset between calls; all calls with one counter launch as
// many blocks. Whoever launches more blocks than fit at once waits for ever: ask the occupancy, not a table.
// The sum is added up in the blocks' order by every block, not by atomics, so that each call gives the same bits.
#include <cmath>
#include <cstdint>

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int BLOCK = 512, HELD = 8;           // float4s that a thread keeps
constexpr int MOST_BLOCKS = 1024;

// Release what this block wrote, draw a ticket, wait for the round's last, acquire what all wrote.
__device__ void wait_for_all(unsigned long long* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned long long ticket, drawn;
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], 1;" : "=l"(ticket) : "l"(counter) : "memory");
    const unsigned long long last = ticket - ticket % gridDim.x + gridDim.x;  // the round's end
    do {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(drawn) : "l"(counter) : "memory");
    } while (drawn < last);
  }
  __syncthreads();
}

__device__ float block_sum(float v) {
  __shared__ float partial[BLOCK / 32];
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(~0u, v, lane);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.0f;
#pragma unroll
  for (int w = 0; w < BLOCK / 32; ++w) v += partial[w];
  __syncthreads();
  return v;
}

__device__ __forceinline__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

__device__ __forceinline__ float4 scaled(float4 v, float by) { return make_float4(v.x * by, v.y * by, v.z * by, v.w * by); }

__global__ void __launch_bounds__(BLOCK, 2)
rms_of_all(const float4* __restrict__ x, float4* __restrict__ out, float* __restrict__ sums, unsigned long long* counter, int64_t vectors, float eps) {
  const int64_t step = int64_t(gridDim.x) * BLOCK, first = int64_t(blockIdx.x) * BLOCK + threadIdx.x;
  float4 v[HELD];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < HELD; ++i) v[i] = first + i * step < vectors ? x[first + i * step] : make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < HELD; ++i) sum += squares(v[i]);
  for (int64_t i = first + HELD * step; i < vectors; i += step) sum += squares(x[i]);  // what no thread can keep is read again
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  wait_for_all(counter);
  float mine = 0.0f;
  for (int b = threadIdx.x; b < gridDim.x; b += BLOCK) mine += __ldcg(sums + b);  // from L2: this SM's L1 may hold older ones
  const float by = rsqrtf(block_sum(mine) / (4.0f * vectors) + eps);
#pragma unroll
  for (int i = 0; i < HELD; ++i)
    if (first + i * step < vectors) out[first + i * step] = scaled(v[i], by);
  for (int64_t i = first + HELD * step; i < vectors; i += step) out[i] = scaled(x[i], by);
}

}  // namespace

// x: a multiple of 4 floats. sums: MOST_BLOCKS floats. counter: one int64, zero before the first call and kept for the next ones.
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out, tvm::ffi::TensorView sums, tvm::ffi::TensorView counter, double eps) {
  const DLDevice at = x.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(at.device_type, at.device_id));
  int sms = 0, fit = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, at.device_id);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, rms_of_all, BLOCK, 0);
  const int blocks = sms * fit < MOST_BLOCKS ? sms * fit : MOST_BLOCKS;
  int64_t vectors = x.numel() / 4;
  const float4* from = static_cast<const float4*>(x.data_ptr());
  float4* to = static_cast<float4*>(out.data_ptr());
  float *parts = static_cast<float*>(sums.data_ptr()), least = eps;
  auto* tickets = static_cast<unsigned long long*>(counter.data_ptr());
  void* arguments[] = {&from, &to, &parts, &tickets, &vectors, &least};
  // A cooperative launch is refused where not all blocks fit, in place of a wait without an end.
  const cudaError_t error = cudaLaunchCooperativeKernel(reinterpret_cast<void*>(rms_of_all), blocks, BLOCK, arguments, 0, stream);
  TVM_FFI_ICHECK(error == cudaSuccess) << cudaGetErrorString(error);
}
