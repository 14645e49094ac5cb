/* ---
id: kernels/gemm/level_03_cuda
title: Float32 products by wgmma in one or three products of bfloat16, float16, TF32 or int8 digits, the operands cut beforehand
archs: [sm_90]
families: [gemm]
bottlenecks: [tensor]
languages: [cuda]
dtypes: [float32]
--- */
// One idea more than level 2: cut each operand once, in a kernel before, into one or two matrices of a narrower type whose terms lie
// together, whatever the strides were. Then TMA brings tiles of the parts of both operands, zeros where they end, and wgmma multiplies
// from shared memory: low high, high low, high high, or once. After FOLD tiles the sums, which the tensor cores round toward zero, are
// added to others. TF32 needs the cut too: wgmma takes its operands along the terms alone, and would drop bits where a cut rounds.
// Digits: a row's largest magnitude is 127 x 256 steps, and each term two signed bytes of steps, 256 h + l. Sums of bytes are exact, those
// of h h' apart from those of h l' + l h'; l l' is left out.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

//@begin math
__device__ __forceinline__ float k_max(float x, float y) { return x > y || x != x ? x : y; }
//@end math

enum class Way { bf16x3, tf32x3, int8x3, bf16, fp16, tf32 };

//@begin shape
constexpr int64_t BATCH = 1, M = 2048, N = 4096, K = 8192;
constexpr int64_t A_M = 8192, A_K = 1, B_K = 4096, B_N = 1;  // elements between neighbours
constexpr int64_t A_BATCH = 1, B_BATCH = 1;                  // different matrices of each
constexpr int STAGES = 3, FOLD = 2, SPLITS = 1, GROUP = 8;
constexpr bool BANDED = false;
constexpr int64_t LOWEST = 0, HIGHEST = 0;  // of column - row: outputs outside are zero
constexpr Way WAY = Way::bf16x3;
constexpr int TILE_N = 128;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // w
  const float* in2;  // bias
  float* out0;
};
//@end tensors

constexpr bool LONG = WAY == Way::tf32x3 || WAY == Way::tf32;
constexpr bool DIGITS = WAY == Way::int8x3;
constexpr int PARTS = WAY == Way::bf16x3 || WAY == Way::tf32x3 || DIGITS ? 2 : 1;
using Narrow = std::conditional_t<WAY == Way::fp16, __half, __nv_bfloat16>;
using Element = std::conditional_t<LONG, float, std::conditional_t<DIGITS, int8_t, Narrow>>;
using Sum = std::conditional_t<DIGITS, int32_t, float>;

constexpr int TILE_M = 128, TILE_K = 128 / sizeof(Element);  // rows of 128 bytes
constexpr uint32_t SIDE_A = TILE_M * 128, SIDE_B = TILE_N * 128, STAGE = PARTS * (SIDE_A + SIDE_B), SHARED = STAGES * STAGE + 1024;
constexpr int SUMS = TILE_N / 2;      // of a thread
constexpr bool FOLDS = TILE_N < 256 && !DIGITS;  // a wider tile leaves no registers for sums beside those of the tensor cores
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;
constexpr int64_t TILES_M = (M + TILE_M - 1) / TILE_M, TILES_N = (N + TILE_N - 1) / TILE_N, TILES = TILES_M * TILES_N;
constexpr int64_t STEPS = (K + TILE_K - 1) / TILE_K, EACH = (STEPS + SPLITS - 1) / SPLITS;
constexpr int64_t LONG_K = DIGITS ? (K + 15) / 16 * 16 : (K + 7) / 8 * 8;  // rows of parts begin at multiples of 16 bytes
constexpr int64_t ROWS_A = A_BATCH * M, ROWS_B = B_BATCH * N;
constexpr float MOST = 127 * 256;  // steps of a row's largest magnitude
static_assert(!DIGITS || EACH * TILE_K <= 1 << 16);  // a term adds 2 x 127 x 128 at most, and a sum is below 2^31
constexpr int64_t PART_A = A_BATCH * M * LONG_K, PART_B = B_BATCH * N * LONG_K;
constexpr int64_t POINTS = BATCH * M * N;
constexpr int WIDE = N % 2 == 0 ? 2 : 1;  // outputs that are stored at once

namespace ptx {

using Map = CUtensorMap;

template <class E>
constexpr CUtensorMapDataType TYPE = std::is_same_v<E, float>    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : std::is_same_v<E, int8_t> ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                     : std::is_same_v<E, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

// Boxes of `tall` rows of 128 bytes, of `batches` matrices of rows x depth.
template <class E>
Map map_of(const E* data, int64_t depth, int64_t rows, int64_t batches, int tall) {
  static void* const entry = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found);
    TVM_FFI_ICHECK(found == cudaDriverEntryPointSuccess) << "the driver has no tensor maps";
    return address;
  }();
  Map map;
  const cuuint64_t wide = depth, high = rows, deep = batches, shape[3] = {wide, high, deep}, stride[2] = {wide * sizeof(E), wide * high * sizeof(E)};
  const cuuint32_t box[3] = {128 / sizeof(E), static_cast<cuuint32_t>(tall), 1}, step[3] = {1, 1, 1};
  const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, TYPE<E>, 3, const_cast<E*>(data), shape, stride, box, step,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(made == CUDA_SUCCESS) << "a tensor map cannot be made: " << static_cast<int>(made);
  return map;
}

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ uint8_t* aligned(uint8_t* p) { return p + (1024 - smem(p) % 1024) % 1024; }

__device__ __forceinline__ void init(uint64_t* bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(bar)) : "memory");
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}

__device__ __forceinline__ void load(const Map& map, uint8_t* to, uint64_t* bar, int k, int row, int batch) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(smem(to)), "l"(&map), "r"(k), "r"(row), "r"(batch), "r"(smem(bar)) : "memory");
}

__device__ __forceinline__ void few_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
__device__ __forceinline__ void many_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }

// K-major, 128-byte swizzle: start / 16, leading offset unused, stride 1024 / 16 between groups of eight rows.
__device__ __forceinline__ uint64_t descriptor(const uint8_t* tile) {
  return (smem(tile) & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void settle() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

#define KIND "+f"
#define F4(i) KIND(d[i]), KIND(d[i + 1]), KIND(d[i + 2]), KIND(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
//@begin instruction
#define WGMMA(TYPES, SIGNS)                                                                                          \
  asm volatile(                                                                                                      \
      "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"                                                                     \
      "wgmma.mma_async.sync.aligned.m64n128" TYPES                                                                   \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
      "%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
      "%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p" SIGNS "; }"                                                    \
      : F16(0), F16(16), F16(32), F16(48)                                                                            \
      : "l"(a), "l"(b), "r"(adds))
//@end instruction
// d = a b + (adds ? d : 0): the predicate spares zeroing d. The immediates are signs of a and b, then their transposes, which
// operands of 16 bits alone have; integers have neither.
template <class E>
__device__ __forceinline__ void wgmma(float (&d)[SUMS], uint64_t a, uint64_t b, int adds) {
  if constexpr (std::is_same_v<E, float>) WGMMA("k8.f32.tf32.tf32", ", 1, 1");
  else if constexpr (std::is_same_v<E, __half>) WGMMA("k16.f32.f16.f16", ", 1, 1, 0, 0");
  else WGMMA("k16.f32.bf16.bf16", ", 1, 1, 0, 0");
}
#undef KIND
#define KIND "+r"
template <class E>
__device__ __forceinline__ void wgmma(int32_t (&d)[SUMS], uint64_t a, uint64_t b, int adds) {
  WGMMA("k32.s32.s8.s8", "");
}
#undef WGMMA
#undef KIND
#undef F16
#undef F4

__device__ __forceinline__ float to_tf32(float x) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return __uint_as_float(rounded);
}

}  // namespace ptx

//@begin operands
__device__ __forceinline__ const float* matrix_a(const Tensors& t, int64_t batch) { return t.in0; }
__device__ __forceinline__ const float* matrix_b(const Tensors& t, int64_t batch) { return t.in1; }
//@end operands

// A term in its type, and what the rounding took away as a second; or its digits, of so many steps a unit.
__device__ __forceinline__ void parts_of(float x, [[maybe_unused]] float steps, float (&to)[2]) {
  if constexpr (DIGITS) {
    const float q = rintf(x * steps);
    to[0] = floorf((q + 128.0f) * (1.0f / 256.0f)), to[1] = q - 256.0f * to[0];
  } else {
    const auto round = [](float v) {
      if constexpr (LONG) return ptx::to_tf32(v);
      else return static_cast<float>(static_cast<Narrow>(v));
    };
    to[0] = round(x);
    if constexpr (PARTS == 2) to[1] = round(x - to[0]);
  }
}

// Steps of a row's unit, given the bits of its largest magnitude: none of zeros, and NaN where there is one.
__device__ __forceinline__ float steps_of(uint32_t peak) { return peak == 0 ? 0.0f : MOST / __uint_as_float(peak); }

template <bool FIRST>
__global__ void __launch_bounds__(256) clear(uint32_t* peaks) {
  const int64_t i = blockIdx.x * int64_t(256) + threadIdx.x;
  if (i < (FIRST ? ROWS_A : ROWS_B)) peaks[(FIRST ? 0 : ROWS_A) + i] = 0;
}

// The bits of the largest magnitude of each row of an operand: as integers they are in the order of what they are, NaN above all.
template <bool FIRST>
__global__ void __launch_bounds__(256) measure(const Tensors t, uint32_t* peaks) {
  constexpr int64_t ROWS = FIRST ? M : N, ROW = FIRST ? A_M : B_N, TERM = FIRST ? A_K : B_K;
  constexpr int64_t ACROSS = (K + 511) / 512, DOWN = (ROWS + 63) / 64;
  constexpr bool ALONG = TERM == 1 || ROW != 1;
  const int64_t batch = blockIdx.x / (ACROSS * DOWN), r0 = blockIdx.x / ACROSS % DOWN * 64, k0 = blockIdx.x % ACROSS * 512;
  const float* from = FIRST ? matrix_a(t, batch) : matrix_b(t, batch);
  uint32_t most[ALONG ? 16 : 1] = {};
#pragma unroll 1
  for (int64_t k1 = k0; k1 < k0 + 512 && k1 < K; k1 += 64) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int i = threadIdx.x + j * 256;
      const int row = ALONG ? i / 64 : i % 64, k = ALONG ? i % 64 : i / 64;
      const float x = r0 + row < ROWS && k1 + k < K ? from[(r0 + row) * ROW + (k1 + k) * TERM] : 0.0f;
      const uint32_t bits = __float_as_uint(fabsf(x));
      most[ALONG ? j : 0] = most[ALONG ? j : 0] > bits ? most[ALONG ? j : 0] : bits;
    }
  }
  for (int j = 0; j < (ALONG ? 16 : 1); ++j) {
    const int row = ALONG ? (threadIdx.x + j * 256) / 64 : threadIdx.x % 64;
    if constexpr (ALONG) {
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, most[j], apart);
        most[j] = most[j] > other ? most[j] : other;
      }
    }
    if ((!ALONG || threadIdx.x % 32 == 0) && r0 + row < ROWS) atomicMax(peaks + (FIRST ? 0 : ROWS_A) + batch * ROWS + r0 + row, most[j]);
  }
}

struct alignas(2 * sizeof(Element)) Pair {
  Element x, y;
};

// 64 rows and 64 terms of an operand, read along what lies together, written along the terms in each part.
template <bool FIRST>
__global__ void __launch_bounds__(256) cut(const Tensors t, Element* parts, [[maybe_unused]] const uint32_t* peaks) {
  constexpr int64_t ROWS = FIRST ? M : N, ROW = FIRST ? A_M : B_N, TERM = FIRST ? A_K : B_K;
  constexpr int64_t ACROSS = (LONG_K + 63) / 64, DOWN = (ROWS + 63) / 64;
  constexpr bool ALONG = TERM == 1 || ROW != 1;
  __shared__ float tile[64][65];
  const int64_t batch = blockIdx.x / (ACROSS * DOWN), r0 = blockIdx.x / ACROSS % DOWN * 64, k0 = blockIdx.x % ACROSS * 64;
  const float* from = FIRST ? matrix_a(t, batch) : matrix_b(t, batch);
#pragma unroll
  for (int j = 0; j < 16; ++j) {  // all are asked for before the first is awaited
    const int i = threadIdx.x + j * 256;
    const int row = ALONG ? i / 64 : i % 64, k = ALONG ? i % 64 : i / 64;
    tile[row][k] = r0 + row < ROWS && k0 + k < K ? from[(r0 + row) * ROW + (k0 + k) * TERM] : 0.0f;
  }
  __syncthreads();
#pragma unroll 4
  for (int i = threadIdx.x; i < 64 * 32; i += 256) {
    const int row = i / 32, k = i % 32 * 2;
    if (r0 + row < ROWS && k0 + k < LONG_K) {
      float x[2], y[2], steps = 0.0f;
      if constexpr (DIGITS) steps = steps_of(peaks[(FIRST ? 0 : ROWS_A) + batch * ROWS + r0 + row]);
      parts_of(tile[row][k], steps, x), parts_of(tile[row][k + 1], steps, y);
      const int64_t at = (batch * ROWS + r0 + row) * LONG_K + k0 + k;
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const Pair pair = {static_cast<Element>(x[part]), static_cast<Element>(y[part])};
        *reinterpret_cast<Pair*>(parts + part * (FIRST ? PART_A : PART_B) + at) = pair;
      }
    }
  }
}

template <int W, class T>
__device__ __forceinline__ void put(T* to, const T (&x)[W]) {
  if constexpr (W == 4 && sizeof(T) == 4) *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  else if constexpr (W == 2 && sizeof(T) == 4) *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
  else
    for (int j = 0; j < W; ++j) to[j] = x[j];
}

//@begin tail
// What follows the product, for W neighbouring outputs of a row.
template <int W>
__device__ __forceinline__ void finish(const Tensors& t, int64_t r, int64_t c, const float (&product)[W]) {
  float o0[W];
#pragma unroll
  for (int j = 0; j < W; ++j) o0[j] = k_max(product[j] + t.in2[c + j], 0.0f);
  put(t.out0 + (r * N + c), o0);
}
//@end tail

template <int W>
__device__ __forceinline__ void finish_band(const Tensors& t, int64_t r, int64_t c, float (&product)[W]) {
  if constexpr (BANDED) {
    const int64_t off = c - r % M;
#pragma unroll
    for (int j = 0; j < W; ++j) product[j] = off + j >= LOWEST && off + j <= HIGHEST ? product[j] : 0.0f;
  }
  finish(t, r, c, product);
}

struct Maps {
  ptx::Map a[PARTS], b[PARTS];
};

__global__ void __launch_bounds__(THREADS, 1) products(const __grid_constant__ Maps maps, const Tensors t, float* scratch,
                                                      [[maybe_unused]] const uint32_t* peaks) {
  extern __shared__ uint8_t shared[];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  uint8_t* ring = ptx::aligned(shared);
  const int64_t tile = blockIdx.x % TILES, part = blockIdx.x / TILES % SPLITS, batch = blockIdx.x / (TILES * SPLITS);
  const int64_t band = tile / (GROUP * TILES_N) * GROUP, high = TILES_M - band < GROUP ? TILES_M - band : GROUP;
  const int64_t m0 = (band + tile % (GROUP * TILES_N) % high) * TILE_M, n0 = tile % (GROUP * TILES_N) / high * TILE_N;
  const int64_t begin = part * EACH, last = begin + EACH < STEPS ? begin + EACH : STEPS;
  const bool zero = BANDED && (n0 + TILE_N - 1 - m0 < LOWEST || n0 - (m0 + TILE_M - 1) > HIGHEST);
  const int steps = zero || last < begin ? 0 : static_cast<int>(last - begin), group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) ptx::init(&full[s], 1), ptx::init(&empty[s], CONSUMERS * 4);
    ptx::fence_init();
  }
  __syncthreads();
  if (group == 0) {  // the producer: one thread works, the whole warpgroup gives its registers away
    ptx::few_registers();
    if (threadIdx.x != 0) return;
    const int of_a = A_BATCH > 1 ? static_cast<int>(batch) : 0, of_b = B_BATCH > 1 ? static_cast<int>(batch) : 0;
    const int row = static_cast<int>(m0), col = static_cast<int>(n0);
    for (int i = 0; i < steps; ++i) {
      const int s = i % STAGES, k = static_cast<int>((begin + i) * TILE_K);
      uint8_t* to = ring + s * STAGE;
      ptx::wait(&empty[s], (i / STAGES & 1) ^ 1);  // parity 1 of a fresh barrier is over: the first round does not wait
      ptx::expect(&full[s], STAGE);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        ptx::load(maps.a[part], to + part * SIDE_A, &full[s], k, row, of_a);
        ptx::load(maps.b[part], to + PARTS * SIDE_A + part * SIDE_B, &full[s], k, col, of_b);
      }
    }
    return;
  }
  ptx::many_registers();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, half = group - 1;
  float sum[FOLDS ? SUMS : 1] = {};
  Sum d[SUMS] = {};
  [[maybe_unused]] Sum cross[SUMS] = {};  // of digits: those of h l' and l h'
  for (int i = 0; i < steps;) {
    const int stop = !FOLDS || steps - i < FOLD ? steps : i + FOLD;
    for (int first = i; i < stop; ++i) {
      const uint8_t* from = ring + i % STAGES * STAGE;
      ptx::wait(&full[i % STAGES], i / STAGES & 1);
      const uint64_t a = ptx::descriptor(from + half * (SIDE_A / 2)), b = ptx::descriptor(from + PARTS * SIDE_A);
      constexpr uint64_t LOW_A = SIDE_A >> 4, LOW_B = SIDE_B >> 4;  // from a part to the next, in descriptors
      ptx::fence();
      if constexpr (DIGITS) {  // a fourth of a row is 32 bytes, 2 of a descriptor
#pragma unroll
        for (int k = 0; k < 4; ++k) ptx::wgmma<Element>(cross, a + LOW_A + 2 * k, b + 2 * k, i - first + k);
#pragma unroll
        for (int k = 0; k < 4; ++k) ptx::wgmma<Element>(cross, a + 2 * k, b + LOW_B + 2 * k, 1);
      } else if constexpr (PARTS == 2) {
#pragma unroll
        for (int k = 0; k < 4; ++k) ptx::wgmma<Element>(d, a + LOW_A + 2 * k, b + 2 * k, i - first + k);
#pragma unroll
        for (int k = 0; k < 4; ++k) ptx::wgmma<Element>(d, a + 2 * k, b + LOW_B + 2 * k, 1);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) ptx::wgmma<Element>(d, a + 2 * k, b + 2 * k, PARTS == 2 && !DIGITS ? 1 : i - first + k);
      ptx::commit();
      ptx::settle<1>();  // the tile before is done
      if (i > first && lane == 0) ptx::arrive(&empty[(i - 1) % STAGES]);
    }
    ptx::settle<0>();
    if constexpr (FOLDS) {
#pragma unroll
      for (int e = 0; e < SUMS; ++e) sum[e] += d[e];
    }
    if (lane == 0) ptx::arrive(&empty[(i - 1) % STAGES]);
  }
  const int64_t r0 = m0 + half * 64 + warp * 16 + lane / 4, c0 = n0 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < SUMS / 2; ++i) {
    const int64_t r = r0 + i % 2 * 8, c = c0 + i / 2 * 8;
#pragma unroll
    for (int j = 0; j < 2; j += WIDE) {
      float out[WIDE];
#pragma unroll
      for (int e = 0; e < WIDE; ++e) out[e] = FOLDS ? sum[FOLDS ? 2 * i + j + e : 0] : static_cast<float>(d[2 * i + j + e]);
      if (r < M && c + j < N) {
        if constexpr (DIGITS) {
          const float of_row = __uint_as_float(peaks[(A_BATCH > 1 ? batch * M : 0) + r]) * (1.0f / MOST);
          const uint32_t* of_columns = peaks + ROWS_A + (B_BATCH > 1 ? batch * N : 0) + c + j;
#pragma unroll
          for (int e = 0; e < WIDE; ++e) {
            const float steps = fmaf(out[e], 65536.0f, 256.0f * static_cast<float>(cross[2 * i + j + e]));
            out[e] = steps * of_row * (__uint_as_float(of_columns[e]) * (1.0f / MOST));
          }
        }
        if constexpr (SPLITS > 1) put(scratch + (part * POINTS + (batch * M + r) * N + c + j), out);
        else finish_band(t, batch * M + r, c + j, out);
      }
    }
  }
}

// The parts of each sum, always in the same order.
__global__ void __launch_bounds__(256) combine(const Tensors t, const float* scratch) {
  const int64_t e = (blockIdx.x * int64_t(256) + threadIdx.x) * WIDE;
  if (e >= POINTS) return;
  float sum[WIDE] = {};
  for (int part = 0; part < SPLITS; ++part) {
#pragma unroll
    for (int j = 0; j < WIDE; ++j) sum[j] += scratch[part * POINTS + e + j];
  }
  finish_band(t, e / N, e % N, sum);
}

// A template, so that kernels of digits are there for digits alone.
template <bool FIRST>
void measured([[maybe_unused]] const Tensors& t, [[maybe_unused]] uint32_t* peaks, [[maybe_unused]] cudaStream_t stream) {
  if constexpr (DIGITS) {
    constexpr int64_t down = FIRST ? (M + 63) / 64 * A_BATCH : (N + 63) / 64 * B_BATCH, blocks = (K + 511) / 512 * down;
    clear<FIRST><<<static_cast<unsigned>(((FIRST ? ROWS_A : ROWS_B) + 255) / 256), 256, 0, stream>>>(peaks);
    measure<FIRST><<<static_cast<unsigned>(blocks), 256, 0, stream>>>(t, peaks);
  }
}

void launch(const Tensors& t, float* scratch, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  constexpr int64_t across = (LONG_K + 63) / 64, of_a = across * ((M + 63) / 64) * A_BATCH, of_b = across * ((N + 63) / 64) * B_BATCH;
  constexpr int64_t blocks = TILES * SPLITS * BATCH, ends = (POINTS / WIDE + 255) / 256;
  auto* a = reinterpret_cast<Element*>(scratch);
  auto *b = a + PARTS * PART_A, *end = b + PARTS * PART_B;
  auto* peaks = reinterpret_cast<uint32_t*>(end);
  float* sums = reinterpret_cast<float*>(end) + (DIGITS ? ROWS_A + ROWS_B : 0);
  measured<true>(t, peaks, stream), measured<false>(t, peaks, stream);
  cut<true><<<static_cast<unsigned>(of_a), 256, 0, stream>>>(t, a, peaks);
  cut<false><<<static_cast<unsigned>(of_b), 256, 0, stream>>>(t, b, peaks);
  Maps maps;
  for (int part = 0; part < PARTS; ++part) {
    maps.a[part] = ptx::map_of(a + part * PART_A, LONG_K, M, A_BATCH, TILE_M);
    maps.b[part] = ptx::map_of(b + part * PART_B, LONG_K, N, B_BATCH, TILE_N);
  }
  cudaFuncSetAttribute(products, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  products<<<static_cast<unsigned>(blocks), THREADS, SHARED, stream>>>(maps, t, sums, peaks);
  if constexpr (SPLITS > 1) combine<<<static_cast<unsigned>(ends), 256, 0, stream>>>(t, sums);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView bias, tvm::ffi::TensorView out, tvm::ffi::TensorView scratch) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(w.data_ptr());
  t.in2 = static_cast<const float*>(bias.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, static_cast<float*>(scratch.data_ptr()), out.device());
}
//@end run
