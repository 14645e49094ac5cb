/* ---
id: kernels/gemm/level_04_cuda
title: A tile that a cluster shares by TMA multicast and remote arrives
archs: [sm_90]
families: [gemm]
bottlenecks: [tensor, l2-bw]
languages: [cuda]
--- */
// A ring of TMA tiles for wgmma, in clusters of two blocks with the same rows of a: each fetches half of a's tile for both. A stage is
// free once the consumers of both have arrived. out (float, M x N) = a (bfloat16, M x K) b (bfloat16, N x K) transposed. M multiple of
// 128, N of 256, K of 64.
#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int TILE = 128, DEPTH = 64, STAGES = 4, CLUSTER = 2, CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;
constexpr uint32_t SIDE = TILE * DEPTH * 2, SHARED = STAGES * 2 * SIDE + 1024;

__device__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void init(uint64_t* bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}

// An arrival on the barrier of the same name in the block of this rank.
__device__ __forceinline__ void arrive(uint64_t* bar, uint32_t rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(smem(bar)), "r"(rank) : "memory");
}

__device__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}

// To the same place in each block of the mask; the bytes count on each one's own barrier at this place.
__device__ __forceinline__ void load(const CUtensorMap& map, uint32_t to, uint64_t* bar, int k, int row, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(k), "r"(row), "r"(smem(bar)), "h"(mask) : "memory");
}

// K-major, 128-byte swizzle: stride 1024 from eight rows to the next; 32 bytes on in K are 2 more in the start.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return (address & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

#define F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0; }"
      : F8(0), F8(8), F8(16), F8(24), F8(32), F8(40), F8(48), F8(56)
      : "l"(a), "l"(b), "r"(adds));
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
gemm_shared(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* out, int n, int steps) {
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  const uint32_t ring = (smem(raw) + 1023) / 1024 * 1024;
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE, group = threadIdx.x / 128;
  const uint32_t rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], CLUSTER * CONSUMERS * 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_cluster();  // no block copies into another, nor arrives there, before its barriers are ready
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int i = 0; threadIdx.x == 0 && i < steps; ++i) {
      const int s = i % STAGES;
      wait(&empty[s], (i / STAGES & 1) ^ 1);
      expect(&full[s], 2 * SIDE);
      load(a, ring + s * 2 * SIDE + rank * (SIDE / CLUSTER), &full[s], i * DEPTH, m0 + rank * (TILE / CLUSTER), (1 << CLUSTER) - 1);
      load(b, ring + s * 2 * SIDE + SIDE, &full[s], i * DEPTH, n0, 1 << rank);
    }
    __syncwarp();
    sync_cluster();  // nobody leaves while another block may still write to it or arrive in it
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, half = group - 1;
  float d[64];
  for (int i = 0; i < steps; ++i) {
    const int s = i % STAGES;
    wait(&full[s], i / STAGES & 1);
    const uint64_t da = descriptor(ring + s * 2 * SIDE + half * (SIDE / 2)), db = descriptor(ring + s * 2 * SIDE + SIDE);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) wgmma(d, da + 2 * k, db + 2 * k, i + k);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (i > 0 && lane < CLUSTER) arrive(&empty[(i - 1) % STAGES], lane);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const size_t row = m0 + half * 64 + warp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    float* to = out + row * n + n0 + j * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(d[4 * j], d[4 * j + 1]);
    *reinterpret_cast<float2*>(to + size_t(8) * n) = make_float2(d[4 * j + 2], d[4 * j + 3]);
  }
  sync_cluster();
}

auto encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  TVM_FFI_ICHECK(found == cudaDriverEntryPointSuccess) << "the driver has no tensor maps";
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

CUtensorMap map_of(const void* data, uint64_t rows, uint64_t cols, uint32_t tall) {
  const cuuint64_t shape[2] = {cols, rows}, stride[1] = {cols * 2};
  const cuuint32_t box[2] = {DEPTH, tall}, step[2] = {1, 1};
  CUtensorMap map;
  const CUresult made = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), shape, stride, box, step,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(made == CUDA_SUCCESS) << "no tensor map";
  return map;
}

}  // namespace

void run(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(0);
  TVM_FFI_ICHECK(m % TILE == 0 && n % (CLUSTER * TILE) == 0 && k % DEPTH == 0) << "sizes are no multiples of the tile";
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, out.device().device_id));
  cudaFuncSetAttribute(gemm_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  gemm_shared<<<dim3(n / TILE, m / TILE), THREADS, SHARED, stream>>>(
      map_of(a.data_ptr(), m, k, TILE / CLUSTER), map_of(b.data_ptr(), n, k, TILE), static_cast<float*>(out.data_ptr()), n, k / DEPTH);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}
