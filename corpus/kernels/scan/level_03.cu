/* ---
id: kernels/scan/level_03_cuda
title: Rows scanned in place in a ring of bulk copies, stores and refills under way, the refill lags behind
archs: [sm_90]
families: [scan]
bottlenecks: [dram-bw, latency]
languages: [cuda]
dtypes: [float32]
--- */
// One idea: nobody waits for memory. Persistent blocks walk the tiles of their rows through a ring in shared memory: bulk copies bring a
// tile, the block scans it in place, a bulk store takes it back. A slot is loaded again when its store has read it; that is waited for
// LAG tiles later, when it has. y = cumsum(x, dim=-1), float32, columns a multiple of TILE.
#include <cstdint>

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32, TILE = THREADS * 8, SLOTS = 12, LAG = 2;
constexpr uint32_t BYTES = TILE * 4;

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void load(float* to, const float* from, uint64_t* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2;\n"
               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(smem(to)), "l"(from), "r"(BYTES), "r"(smem(bar)) : "memory");
}

__device__ __forceinline__ void store(float* to, const float* from) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"
               ::"l"(to), "r"(smem(from)), "r"(BYTES) : "memory");
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}

// Inclusive sums of a float4; its last is the total.
__device__ __forceinline__ float4 summed(float4 v) {
  v.y += v.x, v.z += v.y, v.w += v.z;
  return v;
}

__device__ __forceinline__ float4 plus(float4 v, float before) { return make_float4(v.x + before, v.y + before, v.z + before, v.w + before); }

// The sum of v over the lanes before this one, never by subtraction; total is the sum of all lanes.
__device__ __forceinline__ float before_in_warp(float v, float& total) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float left = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += left;
  }
  total = __shfl_sync(~0u, v, 31);
  const float left = __shfl_up_sync(~0u, v, 1);
  return lane ? left : 0.0f;
}

__global__ void __launch_bounds__(THREADS) scan_rows(const float* __restrict__ x, float* __restrict__ y, int64_t rows, int tiles) {
  extern __shared__ __align__(128) float ring[];
  __shared__ __align__(8) uint64_t full[SLOTS];
  __shared__ float warp_sums[2][WARPS];  // doubled by parity, so that one barrier stands between uses
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int64_t mine = (rows - blockIdx.x + gridDim.x - 1) / gridDim.x * tiles;
  const auto at = [&](int64_t i) { return ((blockIdx.x + i / tiles * gridDim.x) * tiles + i % tiles) * TILE; };
  if (t == 0) {
    for (int s = 0; s < SLOTS; ++s) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(&full[s])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int i = 0; i < SLOTS && i < mine; ++i) load(ring + i * TILE, x + at(i), &full[i]);
  }
  __syncthreads();
  float carry = 0.0f;
  for (int64_t i = 0; i < mine; ++i) {
    const int s = i % SLOTS;
    if (i % tiles == 0) carry = 0.0f;
    wait(&full[s], i / SLOTS & 1);
    float4* tile = reinterpret_cast<float4*>(ring + s * TILE) + warp * 64;  // a warp's 64 float4, 32 and 32
    const float4 low = summed(tile[lane]), high = summed(tile[32 + lane]);
    float low_total, high_total;
    const float low_before = before_in_warp(low.w, low_total), high_before = before_in_warp(high.w, high_total);
    if (lane == 0) warp_sums[i & 1][warp] = low_total + high_total;
    __syncthreads();
    float before = carry;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) before += warp_sums[i & 1][w];
      carry += warp_sums[i & 1][w];
    }
    tile[lane] = plus(low, before + low_before);
    tile[32 + lane] = plus(high, before + low_total + high_before);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // by each thread that wrote
    __syncthreads();
    if (t > 0) continue;
    store(y + at(i), ring + s * TILE);
    const int64_t old = i - LAG;
    if (old < 0 || old + SLOTS >= mine) continue;
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LAG) : "memory");  // all but the LAG newest stores have read their slots
    load(ring + old % SLOTS * TILE, x + at(old + SLOTS), &full[old % SLOTS]);
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // shared memory stays until the last store is done
}

}  // namespace

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  const int64_t rows = x.size(0), cols = x.size(1);
  const auto from = static_cast<const float*>(x.data_ptr());
  TVM_FFI_ICHECK(cols % TILE == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) << "no whole tiles, or not on 16 bytes";
  const DLDevice at = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(at.device_type, at.device_id));
  int sms = 0, fit = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, at.device_id);
  cudaFuncSetAttribute(scan_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, SLOTS * BYTES);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, scan_rows, THREADS, SLOTS * BYTES);
  const int64_t blocks = rows < int64_t(sms) * fit ? rows : int64_t(sms) * fit;
  scan_rows<<<blocks, THREADS, SLOTS * BYTES, stream>>>(from, static_cast<float*>(out.data_ptr()), rows, cols / TILE);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}
