/* ---
id: kernels/attention/level_01_cuda
title: Attention by wgmma with a running softmax, float32 in three products of float16 parts, scores never in memory
archs: [sm_90]
families: [attention, softmax, gemm]
bottlenecks: [dram-bw, tensor]
languages: [cuda]
dtypes: [float32, float16, bfloat16]
--- */
// One idea: scores stay in registers. A block keeps TILE_M queries and reads keys and values KEYS at a time; each thread has parts of two
// rows of scores, their running maximum and sum, and sums of values, which it scales down whenever the maximum grows. The accumulators of
// the scores lie as wgmma wants its first operand, so weights go back to the tensor cores without shared memory.
// float32 is two float16 parts, of queries, keys, values and weights alike: low high, high low, high high. So that both parts have all their
// bits, a query, and the keys or values of a tile, are first scaled by a power of two, whose inverse is a `unit`. Keys and values are cut
// once, in a kernel before, values turned so that keys lie together; what TMA brings is zero where they end. The products of a tile of
// keys begin at zero and are added to float32 sums, since the tensor cores round toward zero.
// Tiles of a mask that all heads share are looked through beforehand: those that hide everything are skipped, those that hide nothing read
// no mask. Where keys, values or results are not finite, parts would make NaN of infinities: `mend` computes such heads again, plainly.
#include <cfloat>
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
//@end math

enum class Way { fp16x3, fp16 };
enum class Mask { none, causal, add, hide, keep };  // what is added to scores, where they are hidden, or where they are kept

//@begin shape
constexpr int64_t HEADS = 1024, M = 512, N = 512;             // all heads of all batches, queries and keys of each
constexpr int D = 96, E = 96;                                 // terms of a query or key, and of a value
constexpr int64_t Q_M = 2304, Q_D = 1, K_N = 2304, K_D = 1;   // elements between neighbours
constexpr int64_t V_N = 2304, V_E = 1, O_M = 768, MASK_M = 0, MASK_N = 0;
constexpr int TOGETHER = 4;                                   // terms of a query that lie together, aligned
constexpr float SCALE = 0.102062073f, FILL = -INFINITY;       // what hidden scores are
constexpr bool EMPTY_IS_ZERO = true;                          // a row of which all is hidden; else it is NaN
constexpr Mask MASK = Mask::causal;
constexpr bool SHARED_MASK = false;                           // all heads read one mask
constexpr int CONSUMERS = 2, KEYS = 64, STAGES = 2;           // warpgroups of 64 queries, keys of a tile
constexpr Way WAY = Way::fp16x3;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // q, k and v, one after the other in a row of all heads
  float* out0;
};
//@end tensors

//@begin operands
using Given = float;   // queries, keys, values and results
using Hidden = float;  // the mask
__device__ __forceinline__ const Given* queries_of(const Tensors& t, int64_t h) { return t.in0 + (h / 8 * 1179648 + h % 8 * 96); }
__device__ __forceinline__ const Given* keys_of(const Tensors& t, int64_t h) { return t.in0 + (768 + h / 8 * 1179648 + h % 8 * 96); }
__device__ __forceinline__ const Given* values_of(const Tensors& t, int64_t h) { return t.in0 + (1536 + h / 8 * 1179648 + h % 8 * 96); }
__device__ __forceinline__ const Hidden* mask_of(const Tensors&, int64_t) { return nullptr; }
__device__ __forceinline__ Given* results_of(const Tensors& t, int64_t h) { return t.out0 + (h / 8 * 393216 + h % 8 * 96); }
//@end operands

using Element = __half;
constexpr int PARTS = WAY == Way::fp16x3 ? 2 : 1;
constexpr int STEPS_D = (D + 15) / 16, CHUNKS = (D + 63) / 64;  // a chunk is 64 terms of a row, 128 bytes
constexpr int LONG_D = (D + 7) / 8 * 8, LONG_E = (E + 7) / 8 * 8, SCORES = KEYS / 2, SUMS = LONG_E / 2;  // the last two of a thread
constexpr int64_t LONG_N = (N + 7) / 8 * 8, PART_K = HEADS * N * LONG_D, PART_V = HEADS * E * LONG_N;
constexpr int TILE_M = CONSUMERS * 64, THREADS = (1 + CONSUMERS) * 128;
constexpr int64_t TILES_M = (M + TILE_M - 1) / TILE_M, TILES_N = (N + KEYS - 1) / KEYS;
constexpr uint32_t CHUNK_Q = TILE_M * 128, CHUNK_K = KEYS * 128, CHUNK_V = LONG_E * 128;
constexpr uint32_t SIDE_Q = CHUNKS * CHUNK_Q, SIDE_K = CHUNKS * CHUNK_K, SIDE_V = KEYS / 64 * CHUNK_V, STAGE = PARTS * (SIDE_K + SIDE_V);
constexpr uint32_t SHARED = PARTS * SIDE_Q + STAGES * STAGE + 1024;
constexpr bool READS_MASK = MASK == Mask::add || MASK == Mask::hide || MASK == Mask::keep, MAPPED = READS_MASK && SHARED_MASK;
constexpr bool FAR = MASK == Mask::add || (READS_MASK && FILL > -INFINITY);  // scores may be so large that a product would round them away
constexpr float POWER = SCALE * 1.44269504f;                                 // e^(SCALE x) = 2^(POWER x)
constexpr float TOP = 14.0f;                                                 // the largest weight of a row is 2^TOP
static_assert(D <= 128 && E <= 128 && KEYS % 64 == 0 && SCALE > 0);

namespace ptx {

using Map = CUtensorMap;

// Boxes of `tall` rows of 128 bytes, of `batches` matrices of rows x depth.
inline Map map_of(const __half* data, int64_t depth, int64_t rows, int64_t batches, int tall) {
  static void* const entry = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found);
    TVM_FFI_ICHECK(found == cudaDriverEntryPointSuccess) << "the driver has no tensor maps";
    return address;
  }();
  Map map;
  const cuuint64_t wide = depth, high = rows, deep = batches, shape[3] = {wide, high, deep}, stride[2] = {wide * 2, wide * high * 2};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(tall), 1}, step[3] = {1, 1, 1};
  const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<__half*>(data), shape, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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

__device__ __forceinline__ void few_registers() {
  if constexpr (CONSUMERS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
}
__device__ __forceinline__ void many_registers() {
  if constexpr (CONSUMERS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
}

// K-major, 128-byte swizzle: start / 16, leading offset unused, stride 1024 / 16 between groups of eight rows.
__device__ __forceinline__ uint64_t descriptor(const uint8_t* tile) {
  return (smem(tile) & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void settle() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// Keeps what reads a sum behind the wait for it.
__device__ __forceinline__ void hold(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

// What threads wrote to shared memory is seen by wgmma.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The warps of a warpgroup meet. A number in a register would take all 16 barriers of a block.
__device__ __forceinline__ void meet(int group) {
  if (group == 0) asm volatile("bar.sync 1, 128;" ::: "memory");
  else if (group == 1) asm volatile("bar.sync 2, 128;" ::: "memory");
  else asm volatile("bar.sync 3, 128;" ::: "memory");
}

__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
//@begin instructions
#define WGMMA(TYPES, SIGNS)                                                                                           \
  asm volatile(                                                                                                       \
      "{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                                                       \
      "wgmma.mma_async.sync.aligned.m64n64" TYPES                                                                     \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"  \
      "%29,%30,%31}, %32, %33, p" SIGNS "; }"                                                                         \
      : F16(0), F16(16)                                                                                               \
      : "l"(a), "l"(b), "r"(adds))
#define WGMMA_KEPT(TYPES, SIGNS)                                                                                      \
  asm volatile(                                                                                                       \
      "{ .reg .pred p; setp.ne.b32 p, %53, 0; "                                                                       \
      "wgmma.mma_async.sync.aligned.m64n96" TYPES                                                                     \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"  \
      "%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, {%48,%49,%50,%51}, %52, p" SIGNS \
      "; }"                                                                                                           \
      : F16(0), F16(16), F16(32)                                                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds))
//@end instructions
// d = a b + (adds ? d : 0). The immediates are signs of a and b, then whether those in shared memory are transposed.
template <class T>
__device__ __forceinline__ void wgmma(float (&d)[SCORES], uint64_t a, uint64_t b, int adds) {
  WGMMA("k16.f32.f16.f16", ", 1, 1, 0, 0");
}
// The same of a 64 x 16 that its warps keep in registers.
template <class T>
__device__ __forceinline__ void wgmma(float (&d)[SUMS], const uint32_t (&a)[4], uint64_t b, int adds) {
  WGMMA_KEPT("k16.f32.f16.f16", ", 1, 1, 0");
}
#undef WGMMA
#undef WGMMA_KEPT
#undef F16
#undef F4

}  // namespace ptx

template <class T>
__device__ __forceinline__ float as_float(T x) {
  if constexpr (std::is_same_v<T, float>) return x;
  else return k_load(x);
}

template <class T>
__device__ __forceinline__ void put(T& to, float x) {
  if constexpr (std::is_same_v<T, float>) to = x;
  else k_store(to, x);
}

// Neighbours that are loaded or stored at once.
template <int COUNT>
struct alignas(COUNT * sizeof(Given)) Several {
  Given at[COUNT];
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) <= FLT_MAX; }

// A number as an element, and what the rounding took away as a second.
__device__ __forceinline__ void parts_of(float x, Element (&to)[PARTS]) {
  to[0] = static_cast<Element>(x);
  if constexpr (PARTS == 2) to[1] = static_cast<Element>(x - static_cast<float>(to[0]));
}

// The power of two by which numbers, given the largest magnitude, are multiplied before they are cut, and its inverse.
struct Unit {
  float times, unit;
};
__device__ __forceinline__ Unit unit_of(float peak) {
  const int most = static_cast<int>(__float_as_uint(peak) >> 23), power = 13 + 127 - most;
  const int e = peak == 0.0f ? 0 : power > 126 ? 126 : power;
  return {__uint_as_float(static_cast<uint32_t>(127 + e) << 23), __uint_as_float(static_cast<uint32_t>(127 - e) << 23)};
}

struct alignas(4) Pair {
  Element x, y;
};

// The largest magnitude that any thread of a block found.
__device__ __forceinline__ float largest(float peak, float (&peaks)[8]) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xFFFFFFFFu, peak, apart));
  if (threadIdx.x % 32 == 0) peaks[threadIdx.x / 32] = peak;
  __syncthreads();
  for (int i = 0; i < 8; ++i) peak = fmaxf(peak, peaks[i]);
  return peak;
}

// Keys or values of a tile, 64 x 64 of them at a time: read along what lies together, once for the largest and once more, and written along
// the terms in each part. Rows of keys are keys, those of values are their terms. Says whether a number is not finite.
template <bool OF_VALUES>
__device__ __forceinline__ bool cut(const Given* from, Element* to, float* unit, int64_t head, int64_t j, float (&tile)[64][65], float (&peaks)[8]) {
  constexpr int64_t ROWS = OF_VALUES ? E : N, ROW = OF_VALUES ? V_E : K_N, TERM = OF_VALUES ? V_N : K_D;
  constexpr int64_t TERMS = OF_VALUES ? N : D, LONG = OF_VALUES ? LONG_N : LONG_D, PART = OF_VALUES ? PART_V : PART_K;
  constexpr int DOWN = OF_VALUES ? (E + 63) / 64 : KEYS / 64, ACROSS = OF_VALUES ? KEYS / 64 : CHUNKS;
  constexpr bool ALONG = TERM == 1 || ROW != 1;
  const int64_t first_row = OF_VALUES ? 0 : j * KEYS, first_term = OF_VALUES ? j * KEYS : 0;
  const int own = threadIdx.x % 64, other = threadIdx.x / 64;  // along what lies together, and across: 4 apart
  const auto read = [&](int piece, float (&x)[16]) {
    const int64_t row = first_row + piece / ACROSS * 64 + (ALONG ? other : own), k = first_term + piece % ACROSS * 64 + (ALONG ? own : other);
    const Given* begin = from + (row * ROW + k * TERM);
    const bool inside = ALONG ? k < TERMS : row < ROWS;
    const int left = static_cast<int>(ALONG ? (ROWS - row < 64 ? ROWS - row : 64) : TERMS - k < 64 ? TERMS - k : 64);
#pragma unroll
    for (int n = 0; n < 16; ++n) x[n] = inside && 4 * n < left ? as_float(begin[n * 4 * (ALONG ? ROW : TERM)]) : 0.0f;  // all are on their way at once
  };
  float x[16], peak = 0.0f;
  bool odd = false;
#pragma unroll 1
  for (int piece = 0; piece < DOWN * ACROSS; ++piece) {
    read(piece, x);
#pragma unroll
    for (int n = 0; n < 16; ++n) peak = fmaxf(peak, fabsf(x[n])), odd |= !finite(x[n]);
  }
  const Unit by = unit_of(largest(peak, peaks));
  if (threadIdx.x == 0) unit[head * TILES_N + j] = by.unit;
#pragma unroll 1
  for (int piece = 0; piece < DOWN * ACROSS; ++piece) {
    if (DOWN * ACROSS > 1) read(piece, x);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 16; ++n) tile[ALONG ? other + 4 * n : own][ALONG ? own : other + 4 * n] = x[n] * by.times;
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < 64 * 32; i += 256) {
      const int64_t row = first_row + piece / ACROSS * 64 + i / 32, k = first_term + piece % ACROSS * 64 + i % 32 * 2;
      if (row < ROWS && k < LONG) {
        Element a[PARTS], b[PARTS];
        parts_of(tile[i / 32][i % 32 * 2], a), parts_of(tile[i / 32][i % 32 * 2 + 1], b);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) *reinterpret_cast<Pair*>(to + part * PART + (head * ROWS + row) * LONG + k) = {a[part], b[part]};
      }
    }
  }
  return odd;
}

enum Kind : uint8_t { HIDDEN, MIXED, OPEN };  // of a warpgroup's tile: all scores are hidden, some, or none

__device__ __forceinline__ bool hides(Hidden x) {
  if constexpr (MASK == Mask::add) return as_float(x) == -INFINITY;
  else return (as_float(x) != 0.0f) == (MASK == Mask::hide);
}

// Looks through the mask of a warpgroup's queries and a tile of keys.
__device__ __forceinline__ void look(const Tensors& t, int64_t m0, int64_t n0, uint8_t* kind, int* seen) {
  if (threadIdx.x < 2) seen[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * KEYS; i += 256) {
    const int64_t m = m0 + i / KEYS, n = n0 + i % KEYS;
    if (m >= M || n >= N) continue;
    const Hidden x = mask_of(t, 0)[m * MASK_M + n * MASK_N];
    if (hides(x)) seen[0] = 1;
    else seen[1] = 1;
    if (MASK == Mask::add && as_float(x) != 0.0f) seen[0] = 1;
  }
  __syncthreads();
  if (threadIdx.x == 0) *kind = !seen[1] && FILL == -INFINITY ? HIDDEN : seen[0] ? MIXED : OPEN;
}

// What threads of all kernels find in memory beside the tensors.
struct Scratch {
  Element *keys, *values;
  float *of_keys, *of_values;  // units of each tile of a head
  int *left, *odd;             // of each head: whether keys or values are not finite, or results
  uint8_t* kinds;              // of tiles of a mask that all heads share
};

// What stands before attention, one block each: keys or values of a tile, or a tile of the mask.
__global__ void __launch_bounds__(256, 4) prepare(const Tensors t, const Scratch made) {
  __shared__ float tile[64][65], peaks[8];
  [[maybe_unused]] __shared__ int seen[2];
  const int64_t at = blockIdx.x - HEADS * TILES_N * 2;
  if constexpr (MAPPED) {
    if (at >= 0) return look(t, at / TILES_N * 64, at % TILES_N * KEYS, made.kinds + at, seen);
  }
  const int64_t head = blockIdx.x / 2 / TILES_N, j = blockIdx.x / 2 % TILES_N;
  const bool odd = blockIdx.x % 2 == 0 ? cut<false>(keys_of(t, head), made.keys, made.of_keys, head, j, tile, peaks)
                                       : cut<true>(values_of(t, head), made.values, made.of_values, head, j, tile, peaks);
  if (odd) made.left[head] = 1;
}

// The queries of a warpgroup in their parts, where wgmma reads them: rows of 128 bytes, swizzled.
__device__ __forceinline__ void take(const Given* from, int64_t rows, uint8_t* to, float* units) {
  constexpr int UNITS = STEPS_D * 4, LANES = UNITS > 16 ? 32 : UNITS > 8 ? 16 : UNITS > 4 ? 8 : 4;  // of four terms; lanes of a row
  const int k = threadIdx.x % LANES * 4;
#pragma unroll 4
  for (int row = threadIdx.x % 128 / LANES; row < 64; row += 128 / LANES) {
    float x[4] = {};
    if (row < rows) {
      if constexpr (TOGETHER == 4) {
        if (k < D) {
          const auto four = *reinterpret_cast<const Several<4>*>(from + row * Q_M + k);
#pragma unroll
          for (int j = 0; j < 4; ++j) x[j] = as_float(four.at[j]);
        }
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = k + j < D ? as_float(from[row * Q_M + (k + j) * Q_D]) : 0.0f;
      }
    }
    float peak = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xFFFFFFFFu, peak, apart));
    const Unit by = unit_of(peak);
    if (k == 0) units[row] = by.unit;
    if (k >= UNITS * 4) continue;
    Element parts[4][PARTS];
#pragma unroll
    for (int j = 0; j < 4; ++j) parts_of(x[j] * by.times, parts[j]);
    uint8_t* at = to + k / 64 * CHUNK_Q + ((row * 128 + k % 64 * 2) ^ row % 8 * 16);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      Pair* pairs = reinterpret_cast<Pair*>(at + part * SIDE_Q);
      pairs[0] = {parts[0][part], parts[1][part]}, pairs[1] = {parts[2][part], parts[3][part]};
    }
  }
}

// A score as the softmax sees it, given its product with a scale: of a masked score, what the mask makes of it.
__device__ __forceinline__ float masked(const Hidden* mask, int64_t m, int64_t n, float x, float unit) {
  if constexpr (MASK == Mask::causal) return n > m ? -INFINITY : x;
  if constexpr (READS_MASK) {
    const Hidden of = mask[(m < M ? m : M - 1) * MASK_M + (n < N ? n : N - 1) * MASK_N];
    if constexpr (MASK == Mask::add) {
      const float more = as_float(of) * unit;
      return x + (more == -INFINITY && as_float(of) > -INFINITY ? -FLT_MAX : more);
    }
    const float hidden = FILL * unit;
    if (hides(of)) return hidden == -INFINITY && FILL > -INFINITY ? -FLT_MAX : hidden;
  }
  return x;
}

// Of the `group`th 64 queries.
__device__ __forceinline__ Kind kind_of([[maybe_unused]] const uint8_t* kinds, int64_t group, int64_t j) {
  const bool ends = (j + 1) * KEYS > N;
  if constexpr (MAPPED) {
    const Kind kind = static_cast<Kind>(kinds[group * TILES_N + j]);
    return kind == OPEN && ends ? MIXED : kind;
  }
  if constexpr (READS_MASK) return MIXED;
  if constexpr (MASK == Mask::causal) {
    if (j * KEYS > group * 64 + 63) return HIDDEN;
    return ends || (j + 1) * KEYS - 1 > group * 64 ? MIXED : OPEN;
  }
  return ends ? MIXED : OPEN;
}

// Whether keys are hidden from all queries of a tile: nobody asks for them.
__device__ __forceinline__ bool skips(const uint8_t* kinds, int64_t tile, int64_t j) {
  bool all = true;
#pragma unroll
  for (int g = 0; g < CONSUMERS; ++g) all &= kind_of(kinds, tile * CONSUMERS + g, j) == HIDDEN;
  return all;
}

struct Maps {
  ptx::Map keys[PARTS], values[PARTS];
};

// Of two rows of scores of a thread, what later tiles need.
struct Rows {
  float top[2], sum[2];
};

// Scores, of so many units, become weights, in place; `scale` is what sums so far are worth after it.
__device__ __forceinline__ void weigh(float (&s)[SCORES], Rows& rows, const float (&unit)[2], float (&scale)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = s[2 * r];
#pragma unroll
    for (int i = 2 * r; i < SCORES; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
    top = fmaxf(rows.top[r], top * unit[r]);
    const float base = top == -INFINITY ? 0.0f : top, shift = fmaf(base, POWER, -TOP), power = unit[r] * POWER;  // -inf - -inf is NaN
    scale[r] = ptx::exp2((rows.top[r] - base) * POWER);
    float sum = 0.0f;
#pragma unroll
    for (int i = 2 * r; i < SCORES; i += 4) {
#pragma unroll
      for (int j = i; j < i + 2; ++j) s[j] = ptx::exp2(FAR ? fmaf(fmaf(s[j], unit[r], -base), POWER, TOP) : fmaf(s[j], power, -shift));
      sum += s[i] + s[i + 1];
    }
    rows.top[r] = top, rows.sum[r] = fmaf(rows.sum[r], scale[r], sum);
  }
}

__device__ __forceinline__ void multiply_keys(float (&s)[SCORES], const uint8_t* queries, const uint8_t* keys) {
  const uint64_t q = ptx::descriptor(queries), k = ptx::descriptor(keys);
  ptx::fence();
#pragma unroll
  for (int turn = 3 - (2 * PARTS - 1); turn < 3; ++turn) {  // low high, high low, high high
    const uint64_t a = q + (turn == 0 ? SIDE_Q >> 4 : 0), b = k + (turn == 1 ? SIDE_K >> 4 : 0);
#pragma unroll
    for (int step = 0; step < STEPS_D; ++step) {
      const uint64_t to_a = (step / 4 * CHUNK_Q >> 4) + step % 4 * 2, to_b = (step / 4 * CHUNK_K >> 4) + step % 4 * 2;
      ptx::wgmma<Element>(s, a + to_a, b + to_b, turn > 3 - (2 * PARTS - 1) || step > 0);
    }
  }
  ptx::commit();
  ptx::settle<0>();
#pragma unroll
  for (int i = 0; i < SCORES; ++i) ptx::hold(s[i]);
}

// Two numbers in one register, the first in its low half.
__device__ __forceinline__ uint32_t packed(float x, float y) {
  const __half2 both = __floats2half2_rn(x, y);
  return reinterpret_cast<const uint32_t&>(both);
}

// Weights of 16 keys as wgmma keeps them, and what is left of them as a second part.
__device__ __forceinline__ void keep(const float* s, uint32_t (&high)[4], [[maybe_unused]] uint32_t (&low)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 both = __floats2half2_rn(s[2 * i], s[2 * i + 1]);
    high[i] = reinterpret_cast<const uint32_t&>(both);
    if constexpr (PARTS == 2) low[i] = packed(s[2 * i] - __half2float(both.x), s[2 * i + 1] - __half2float(both.y));
  }
}

__device__ __forceinline__ void multiply_values(float (&d)[SUMS], const uint32_t (&high)[KEYS / 16][4],
                                                [[maybe_unused]] const uint32_t (&low)[KEYS / 16][4], const uint8_t* values) {
  const uint64_t v = ptx::descriptor(values);
  ptx::fence();
#pragma unroll
  for (int step = 0; step < KEYS / 16; ++step) {
    const uint64_t b = v + (step / 4 * CHUNK_V >> 4) + step % 4 * 2;
    if constexpr (PARTS == 2) {
      ptx::wgmma<Element>(d, low[step], b, step > 0);
      ptx::wgmma<Element>(d, high[step], b + (SIDE_V >> 4), 1);
    }
    ptx::wgmma<Element>(d, high[step], b, PARTS == 2 || step > 0);
  }
  ptx::commit();
  ptx::settle<0>();
#pragma unroll
  for (int i = 0; i < SUMS; ++i) ptx::hold(d[i]);
}

struct Bars {
  uint64_t keys[STAGES], values[STAGES], keys_read[STAGES], values_read[STAGES];
};

// One thread asks for keys and values, as far ahead as stages are free.
__device__ __forceinline__ void produce(const Maps& maps, uint8_t* ring, Bars& bars, const uint8_t* kinds, int head, int64_t tile, int64_t tiles) {
  for (int64_t j = 0, i = 0; j < tiles; ++j) {
    if (skips(kinds, tile, j)) continue;
    const int s = static_cast<int>(i % STAGES), parity = static_cast<int>(i / STAGES & 1) ^ 1, n0 = static_cast<int>(j * KEYS);
    uint8_t* to = ring + s * STAGE;
    ptx::wait(&bars.keys_read[s], parity);  // parity 1 of a fresh barrier is over: the first round does not wait
    ptx::expect(&bars.keys[s], PARTS * SIDE_K);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) ptx::load(maps.keys[part], to + part * SIDE_K + c * CHUNK_K, &bars.keys[s], c * 64, n0, head);
    }
    to += PARTS * SIDE_K;
    ptx::wait(&bars.values_read[s], parity);
    ptx::expect(&bars.values[s], PARTS * SIDE_V);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int c = 0; c < KEYS / 64; ++c) ptx::load(maps.values[part], to + part * SIDE_V + c * CHUNK_V, &bars.values[s], n0 + c * 64, 0, head);
    }
    ++i;
  }
}

// The sums of two rows over those of the weights. Says whether a result is not finite, but of rows of which all is hidden.
__device__ __forceinline__ bool finish(Given* to, const float (&o)[SUMS], const Rows& rows, int64_t m, int lane) {
  bool odd = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = rows.sum[r];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const float share = EMPTY_IS_ZERO && sum == 0.0f ? 0.0f : 1.0f / sum;
    if (m + r * 8 >= M) continue;
#pragma unroll
    for (int i = 0; i < SUMS / 4; ++i) {
      const int e = i * 8 + lane % 4 * 2;
      const float x = o[4 * i + 2 * r] * share, y = o[4 * i + 2 * r + 1] * share;
      Given* at = to + (m + r * 8) * O_M + e;
      odd |= sum != 0.0f && !(finite(x) && finite(y));
      if constexpr (E % 2 == 0 && O_M % 2 == 0) {
        Several<2> two;
        put(two.at[0], x), put(two.at[1], y);
        if (e < E) *reinterpret_cast<Several<2>*>(at) = two;
      } else {
        if (e < E) put(at[0], x);
        if (e + 1 < E) put(at[1], y);
      }
    }
  }
  return odd;
}

// A tile of queries. Heads with odd keys or values are left to `mend`; those with odd results are told to it.
__global__ void __launch_bounds__(THREADS, 1)
    attend(const __grid_constant__ Maps maps, const Tensors t, const Scratch made) {
  extern __shared__ uint8_t shared[];
  __shared__ __align__(8) Bars bars;
  __shared__ float units[TILE_M];
  uint8_t *queries = ptx::aligned(shared), *ring = queries + PARTS * SIDE_Q;
  const int64_t head = blockIdx.x / TILES_M, tile = TILES_M - 1 - blockIdx.x % TILES_M, m0 = tile * TILE_M;  // the longest first
  const int64_t seen = MASK == Mask::causal && m0 + TILE_M < N ? m0 + TILE_M : N, tiles = (seen + KEYS - 1) / KEYS;
  if (made.left[head]) return;
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      ptx::init(&bars.keys[s], 1), ptx::init(&bars.values[s], 1);
      ptx::init(&bars.keys_read[s], CONSUMERS * 4), ptx::init(&bars.values_read[s], CONSUMERS * 4);
    }
    ptx::fence_init();
  }
  __syncthreads();
  if (group == 0) {  // the producer: one thread works, the whole warpgroup gives its registers away
    ptx::few_registers();
    if (threadIdx.x == 0) produce(maps, ring, bars, made.kinds, static_cast<int>(head), tile, tiles);
    return;
  }
  ptx::many_registers();
  const int64_t first = m0 + (group - 1) * 64, m = first + threadIdx.x / 32 % 4 * 16 + lane / 4;
  uint8_t* own = queries + (group - 1) * 64 * 128;
  take(queries_of(t, head) + first * Q_M, M - first, own, units + (group - 1) * 64);
  ptx::publish();
  ptx::meet(group - 1);
  [[maybe_unused]] const Hidden* mask = mask_of(t, head);
  const float of_query[2] = {units[m - m0], units[m - m0 + 8]};
  Rows rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
  float o[SUMS] = {};
  int64_t i = 0;
  for (int64_t j = 0; j < tiles; ++j) {
    if (skips(made.kinds, tile, j)) continue;
    const Kind kind = kind_of(made.kinds, tile * CONSUMERS + group - 1, j);
    const int s = static_cast<int>(i % STAGES), parity = static_cast<int>(i / STAGES & 1);
    ++i;
    ptx::wait(&bars.keys[s], parity);
    if (kind == HIDDEN) {  // from this warpgroup alone
      ptx::wait(&bars.values[s], parity);
      if (lane == 0) ptx::arrive(&bars.keys_read[s]), ptx::arrive(&bars.values_read[s]);
      continue;
    }
    const uint8_t* from = ring + s * STAGE;
    const float of_keys = made.of_keys[head * TILES_N + j], of_values = made.of_values[head * TILES_N + j];
    float scores[SCORES], scale[2], unit[2] = {of_query[0] * of_keys, of_query[1] * of_keys};
    multiply_keys(scores, own, from);
    if (lane == 0) ptx::arrive(&bars.keys_read[s]);
    if (kind == MIXED) {
#pragma unroll
      for (int e = 0; e < SCORES; ++e) {
        const int64_t n = j * KEYS + e / 4 * 8 + lane % 4 * 2 + e % 2;
        scores[e] = n < N ? masked(mask, m + e / 2 % 2 * 8, n, scores[e] * unit[e / 2 % 2], 1.0f / SCALE) : -INFINITY;
      }
      unit[0] = unit[1] = 1.0f;
    }
    weigh(scores, rows, unit, scale);
    uint32_t high[KEYS / 16][4], low[KEYS / 16][4];
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step) keep(scores + step * 8, high[step], low[step]);
    float d[SUMS];
    ptx::wait(&bars.values[s], parity);
    multiply_values(d, high, low, from + PARTS * SIDE_K);
    if (lane == 0) ptx::arrive(&bars.values_read[s]);
#pragma unroll
    for (int e = 0; e < SUMS; ++e) o[e] = fmaf(o[e], scale[e / 2 % 2], d[e] * of_values);
  }
  if (finish(results_of(t, head), o, rows, m, lane)) made.odd[head] = 1;
}

constexpr int MENDED = 256;  // rows of a block

// A row of a head that is odd, by a warp: the maximum, then weights and sums of values, all in float32.
__device__ __forceinline__ void mend_row(const Tensors& t, int64_t head, int64_t m) {
  const int lane = threadIdx.x % 32;
  const Given *q = queries_of(t, head) + m * Q_M, *keys = keys_of(t, head), *values = values_of(t, head);
  [[maybe_unused]] const Hidden* mask = mask_of(t, head);
  const auto score = [&](int64_t n) {
    float dot = 0.0f;
    for (int k = lane; k < D; k += 32) dot = fmaf(as_float(q[k * Q_D]), as_float(keys[n * K_N + k * K_D]), dot);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, apart);
    return masked(mask, m, n, dot * SCALE, 1.0f);
  };
  float top = -INFINITY, sum = 0.0f, o[4] = {};
  for (int64_t n = 0; n < N; ++n) {
    const float x = score(n);
    top = x > top || x != x ? x : top;
  }
  for (int64_t n = 0; n < N; ++n) {
    const float weight = expf(score(n) - top);
    sum += weight;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i * 32 + lane < E) o[i] = fmaf(weight, as_float(values[n * V_N + (i * 32 + lane) * V_E]), o[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool empty = EMPTY_IS_ZERO && top == -INFINITY;
    if (i * 32 + lane < E) put(results_of(t, head)[m * O_M + i * 32 + lane], empty ? 0.0f : o[i] / sum);
  }
}

__global__ void __launch_bounds__(256) mend(const Tensors t, const Scratch made) {
  constexpr int64_t PIECES = (M + MENDED - 1) / MENDED;
  const int64_t head = blockIdx.x / PIECES, first = blockIdx.x % PIECES * MENDED;
  if (!made.left[head] && !made.odd[head]) return;
  for (int64_t m = first + threadIdx.x / 32; m < first + MENDED && m < M; m += 8) mend_row(t, head, m);
}

void launch(const Tensors& t, float* scratch, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  Scratch made;
  made.keys = reinterpret_cast<Element*>(scratch), made.values = made.keys + PARTS * PART_K;
  made.of_keys = reinterpret_cast<float*>(made.values + PARTS * PART_V), made.of_values = made.of_keys + HEADS * TILES_N;
  made.left = reinterpret_cast<int*>(made.of_values + HEADS * TILES_N), made.odd = made.left + HEADS;
  made.kinds = reinterpret_cast<uint8_t*>(made.odd + HEADS);
  constexpr int64_t before = HEADS * TILES_N * 2 + (MAPPED ? TILES_M * CONSUMERS * TILES_N : 0), after = HEADS * ((M + MENDED - 1) / MENDED);
  static_assert(before < 2147483648 && HEADS * TILES_M < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaMemsetAsync(made.left, 0, 2 * HEADS * sizeof(int), stream);
  prepare<<<static_cast<unsigned>(before), 256, 0, stream>>>(t, made);
  Maps maps;
  for (int part = 0; part < PARTS; ++part) {
    maps.keys[part] = ptx::map_of(made.keys + part * PART_K, LONG_D, N, HEADS, KEYS);
    maps.values[part] = ptx::map_of(made.values + part * PART_V, LONG_N, E, HEADS, LONG_E);
  }
  cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  attend<<<static_cast<unsigned>(HEADS * TILES_M), THREADS, SHARED, stream>>>(maps, t, made);
  mend<<<static_cast<unsigned>(after), 256, 0, stream>>>(t, made);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView qkv, tvm::ffi::TensorView out, tvm::ffi::TensorView scratch) {
  Tensors t;
  t.in0 = static_cast<const float*>(qkv.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, static_cast<float*>(scratch.data_ptr()), out.device());
}
//@end run
