/* ---
id: kernels/gemm/level_06_cuda
title: A float32 product as one float16 product, its corrections in e4m3 first and into the same accumulators
archs: [sm_90]
families: [gemm]
bottlenecks: [tensor]
languages: [cuda]
dtypes: [float32]
--- */
// One idea: what float16 drops is small, so e4m3 is enough for it, at twice float16's speed. a = A + ra with A rounded
// to float16; then a b = A B + (ra b + a rb). The bracket is multiplied first, in e4m3, scaled by 2^20; the
// accumulators take the scale off and go on with A B. That takes two float16 products' time, where three products of
// bfloat16 parts take three, and leaves about a thirtieth of float16's error. A pass beforehand packs each operand into
// blocks of 128 rows by 128 bytes, swizzled as wgmma reads them, so that a plain bulk copy fetches a block.
// out (M x N) = relu((a (M x K) b (N x K) transposed + bias - less) * times), float32. M and N multiples of 256, K of
// 128. scale_a, scale_b: powers of two that bring all |a| and |b| below 16, at best to about 1.
// Measured: 663 us for 1024 x 8192 x 8192 with both passes on an H200, the module this comes from; torch.compile 2,712
// us in float32.
#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int TILE_M = 128, TILE_N = 256, STAGES = 4, CLUSTER = 2, CONSUMERS = 2;
constexpr int THREADS = CONSUMERS * 128 + 32, PACK_THREADS = 256;
constexpr uint32_t LINE = 128, BLOCK = 128 * LINE, STAGE = 3 * BLOCK;  // bytes; a stage: one block of a, two of b
constexpr uint32_t SHARED = STAGES * STAGE + 1024;
constexpr float REST = 65536.0f, VALUE = 16.0f;  // scales of what float16 drops and of what multiplies it, in e4m3

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void init(uint64_t* bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}

// An arrival on the barrier of the same name in the block of this rank.
__device__ __forceinline__ void arrive(uint64_t* bar, uint32_t rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(smem(bar)), "r"(rank)
               : "memory");
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}

__device__ __forceinline__ void load(uint32_t to, const void* from, uint64_t* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(BLOCK), "r"(smem(bar)) : "memory");
}

// To the same place in both blocks of the cluster; the bytes count on each one's own barrier.
__device__ __forceinline__ void load_both(uint32_t to, const void* from, uint64_t* bar) {
  constexpr uint16_t BOTH = (1 << CLUSTER) - 1;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(BLOCK), "r"(smem(bar)), "h"(BOTH) : "memory");
}

__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// K-major, 128-byte swizzle: stride 1024 from eight rows to the next; 32 bytes on in K are 2 more in the start.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return (address & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

#define R32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
#define R64 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
#define R96 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
#define R128 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define F32(i) F8(i), F8(i + 8), F8(i + 16), F8(i + 24)
#define WGMMA(SHAPE, TAIL)                                                                                       \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"                                                       \
               "wgmma.mma_async.sync.aligned.m64n256" SHAPE " {" R32 R64 R96 R128 "}, %128, %129, p" TAIL "; }"  \
               : F32(0), F32(32), F32(64), F32(96) : "l"(a), "l"(b), "r"(1))

// 64 x 256 accumulators and 32 bytes of K of each operand.
template <bool HALVES> __device__ __forceinline__ void wgmma(float (&d)[128], uint64_t a, uint64_t b) {
  if constexpr (HALVES) WGMMA("k16.f32.f16.f16", ", 1, 1, 0, 0");
  else WGMMA("k32.f32.e4m3.e4m3", ", 1, 1");
}

__device__ __forceinline__ uint32_t e4m3x4(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

// A thread packs 16 values of a row. The blocks of 128 rows lie in the order of their use: K / 128 of a's
// rest and b's value, K / 128 of a's value and b's rest, K / 64 of halves.
template <bool IS_B>
__global__ void __launch_bounds__(PACK_THREADS)
pack(const float* __restrict__ x, uint8_t* __restrict__ packed, uint32_t k, float scale) {
  // Backwards: the product starts on what L2 still holds.
  const uint32_t index = (gridDim.x - 1 - blockIdx.x) * PACK_THREADS + threadIdx.x;
  const uint32_t row = index / (k / 16), k0 = index % (k / 16) * 16;
  const float4* from = reinterpret_cast<const float4*>(x + size_t(row) * k + k0);
  uint32_t half[8], rest[4], value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 f = from[i], v = make_float4(f.x * scale, f.y * scale, f.z * scale, f.w * scale);
    const __half2 low = __floats2half2_rn(v.x, v.y), high = __floats2half2_rn(v.z, v.w);
    const float2 l = __half22float2(low), h = __half22float2(high);
    half[2 * i] = *reinterpret_cast<const uint32_t*>(&low);
    half[2 * i + 1] = *reinterpret_cast<const uint32_t*>(&high);
    rest[i] = e4m3x4((v.x - l.x) * REST, (v.y - l.y) * REST, (v.z - h.x) * REST, (v.w - h.y) * REST);
    value[i] = e4m3x4(v.x * VALUE, v.y * VALUE, v.z * VALUE, v.w * VALUE);
  }
  const uint32_t eighths = k / LINE, line = k0 / LINE, chunk = k0 % LINE / 16, half_chunk = k0 % 64 / 8, flip = row % 8;
  uint8_t* to = packed + size_t(row / 128) * (k / 32) * BLOCK + row % 128 * LINE;
  const auto put = [&](uint32_t block, uint32_t at, const uint32_t* w) {  // chunk c of a row lies at c ^ row % 8
    *reinterpret_cast<uint4*>(to + size_t(block) * BLOCK + (at ^ flip) * 16) = make_uint4(w[0], w[1], w[2], w[3]);
  };
  put(IS_B ? eighths + line : line, chunk, rest);
  put(IS_B ? line : eighths + line, chunk, value);
  put(2 * eighths + k0 / 64, half_chunk, half);
  put(2 * eighths + k0 / 64, half_chunk + 1, half + 4);
}

struct Ring {
  uint32_t base;
  uint64_t *full, *empty;
  uint32_t turn = 0;  // stages that went through since the kernel began
  __device__ __forceinline__ uint32_t slot() const { return turn % STAGES; }
  __device__ __forceinline__ uint32_t parity() const { return turn / STAGES & 1; }
  __device__ __forceinline__ uint32_t at() const { return base + slot() * STAGE; }
  __device__ __forceinline__ void free_last(int lane) const {  // in both blocks: half of b came from the other one
    if (lane < CLUSTER) arrive(&empty[(turn - 1) % STAGES], lane);
  }
};

template <bool HALVES>
__device__ __forceinline__ void accumulate(float (&d)[128], Ring& ring, int stages, int group, int lane) {
  for (int s = 0; s < stages; ++s, ++ring.turn) {
    wait(&ring.full[ring.slot()], ring.parity());
    const uint64_t a = descriptor(ring.at() + group * (BLOCK / CONSUMERS)), b = descriptor(ring.at() + BLOCK);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < int(LINE / 32); ++k) wgmma<HALVES>(d, a + 2 * k, b + 2 * k);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (s > 0) ring.free_last(lane);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  ring.free_last(lane);
}

struct Epilogue {
  const float* bias;
  float unscale, less, times;
  __device__ __forceinline__ float operator()(float sum, float b) const {
    const float v = (sum * unscale + b - less) * times;
    return v <= 0.0f ? 0.0f : v;  // keeps NaN
  }
};

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
gemm(const uint8_t* __restrict__ a, const uint8_t* __restrict__ b, float* __restrict__ out, int m, int n, int k,
     Epilogue finish) {
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  Ring ring{(smem(raw) + 1023) / 1024 * 1024, full, empty};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = rank_in_cluster(), lines = k / 32;
  const int tall = m / (CLUSTER * TILE_M), tiles = tall * (n / TILE_N), clusters = gridDim.x / CLUSTER;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], CLUSTER * CONSUMERS * 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  sync_cluster();  // no block copies into another, nor arrives there, before its barriers are ready
  if (warp == CONSUMERS * 4) {
    for (int tile = blockIdx.x / CLUSTER; lane == 0 && tile < tiles; tile += clusters) {  // neighbours share rows of b
      const uint8_t* from_a = a + size_t(tile % tall * CLUSTER + rank) * lines * BLOCK;
      const uint8_t* from_b = b + size_t(tile / tall * CLUSTER + rank) * lines * BLOCK;
      for (int s = 0; s < lines; ++s, ++ring.turn) {
        uint64_t* bar = &full[ring.slot()];
        wait(&empty[ring.slot()], ring.parity() ^ 1);
        expect(bar, STAGE);
        load(ring.at(), from_a + size_t(s) * BLOCK, bar);
        load_both(ring.at() + (1 + rank) * BLOCK, from_b + size_t(s) * BLOCK, bar);
      }
    }
  } else {
    const int group = warp / 4;
    float d[128];
    for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += clusters) {
#pragma unroll
      for (int i = 0; i < 128; ++i) d[i] = 0.0f;
      accumulate<false>(d, ring, lines / 2, group, lane);
#pragma unroll
      for (int i = 0; i < 128; ++i) d[i] *= 1.0f / (REST * VALUE);
      accumulate<true>(d, ring, lines / 2, group, lane);
      const int row = (tile % tall * CLUSTER + rank) * TILE_M + group * 64 + warp % 4 * 16 + lane / 4;
      const int column = tile / tall * TILE_N + lane % 4 * 2;
      float* to = out + size_t(row) * n + column;
#pragma unroll
      for (int j = 0; j < TILE_N / 8; ++j) {
        const float b0 = __ldg(finish.bias + column + j * 8), b1 = __ldg(finish.bias + column + j * 8 + 1);
        const float2 upper = make_float2(finish(d[4 * j], b0), finish(d[4 * j + 1], b1));
        const float2 lower = make_float2(finish(d[4 * j + 2], b0), finish(d[4 * j + 3], b1));
        *reinterpret_cast<float2*>(to + j * 8) = upper;
        *reinterpret_cast<float2*>(to + size_t(8) * n + j * 8) = lower;
      }
    }
  }
  __syncwarp();
  sync_cluster();  // nobody leaves while the other block may still write to it or arrive in it
}

}  // namespace

// packed_a, packed_b: four bytes for each value of a and of b.
void run(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView bias, tvm::ffi::TensorView packed_a,
         tvm::ffi::TensorView packed_b, tvm::ffi::TensorView out, double scale_a, double scale_b, double less,
         double times) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(0);
  TVM_FFI_ICHECK(m % (CLUSTER * TILE_M) == 0 && n % TILE_N == 0 && k % LINE == 0)
      << "M and N are no multiples of 256, or K is none of 128";
  const int device = out.device().device_id;
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, device));
  auto *to_a = static_cast<uint8_t*>(packed_a.data_ptr()), *to_b = static_cast<uint8_t*>(packed_b.data_ptr());
  const auto *from_a = static_cast<const float*>(a.data_ptr()), *from_b = static_cast<const float*>(b.data_ptr());
  pack<false><<<m * (k / 16) / PACK_THREADS, PACK_THREADS, 0, stream>>>(from_a, to_a, k, scale_a);
  pack<true><<<n * (k / 16) / PACK_THREADS, PACK_THREADS, 0, stream>>>(from_b, to_b, k, scale_b);
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  const int64_t tiles = m / (CLUSTER * TILE_M) * (n / TILE_N), clusters = tiles < sms / CLUSTER ? tiles : sms / CLUSTER;
  const auto unscale = static_cast<float>(1.0 / (scale_a * scale_b));
  const Epilogue finish{static_cast<const float*>(bias.data_ptr()), unscale, float(less), float(times)};
  auto* to = static_cast<float*>(out.data_ptr());
  gemm<<<clusters * CLUSTER, THREADS, SHARED, stream>>>(to_a, to_b, to, m, n, k, finish);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}
