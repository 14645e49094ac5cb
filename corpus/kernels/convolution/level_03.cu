/* ---
id: kernels/convolution/level_03_cuda
title: Any dense convolution, plain or transposed, as an implicit GEMM by wgmma over a copy in narrow units of eight channels
archs: [sm_90]
families: [conv, gemm]
bottlenecks: [tensor, dram-bw]
languages: [cuda]
dtypes: [float32, float16, bfloat16]
--- */
// One idea more than level 2: copy the input once as units of 16 bytes, eight channels of a pixel in a narrow type, [image][unit][place].
// That pass coalesces both ways, and a box of it with its halo, as TMA brings it, is an operand of wgmma without a swizzle: one tap to the
// right is 16 bytes more in the descriptor, one tap down is a row more, eight channels more are a plane more, or the next tap where there
// are eight channels at most. So an input is read once for all taps. TMA's zeros outside the image are the padding.
// A stride is a matter of the copy: places of each remainder lie apart, and each is a convolution of stride 1 with fewer taps, all added.
// A transposed convolution is one of stride 1 for each remainder of the output's places. The tables say which taps meet where.
// A block makes TILE_N channels at boxes of 64 places, 8 x 8 or in one row; blocks stay, so that boxes of the next tile come while results
// are stored. Sums go through shared memory, so that a warp stores 32 neighbours of one channel, where registers hold 8 neighbours of
// four. So what phases of a row interleave is made by one block.
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

enum class Way { bf16, fp16, tf32 };

//@begin shape
constexpr int64_t IMAGES = 64, IMAGE = 4194304;               // and elements from one to the next of the input
constexpr int IN = 64, IN_D = 1, IN_H = 256, IN_W = 256;      // channels and places of the input
constexpr int OUT = 64, OUT_D = 1, OUT_H = 254, OUT_W = 254;  // and of the output
constexpr int STRIDE_D = 1, STRIDE_H = 1, STRIDE_W = 1;       // of the input, from an output's place to the next
constexpr int APART_D = 1, APART_H = 1, APART_W = 1;          // of the output, between places of one phase
constexpr int ORIGIN_D = 0, ORIGIN_H = 0, ORIGIN_W = 0;       // where the box of a tile begins, from its first place
constexpr int HALO_D = 0, HALO_H = 2, HALO_W = 2;             // places of a box beside those of its tile
constexpr bool LINE = false;                                  // one dimension: rows are eight places of the line
constexpr int W_OUT = 576, W_IN = 9;                          // weights between neighbouring channels
constexpr int GROUPS = 1, PHASES = 1, LISTS = 1, TAPS = 9, STEPS = 9;
constexpr int TILE_D = 1, TILE_H = 4, TILE_W = 1, TILE_N = 64;  // a tile: boxes of 64 places, and channels
constexpr int TALL = 1, WIDE = 64;                              // a box's places
constexpr int TURNS = 1;                                        // phases of a row, which one tile makes
constexpr int UNITS = 8, TOGETHER = 2;                          // units of a place, in all and in a stage
constexpr int STAGES = 3, W_STAGES = 3, JOINT = 3, RESIDENT = 2;
constexpr Way WAY = Way::fp16;
//@end shape

// A list is the taps that one phase of the output has of one remainder of the input, `group`.
//@begin tables
__constant__ int GROUP_D[GROUPS] = {0}, GROUP_H[GROUPS] = {0}, GROUP_W[GROUPS] = {0};  // remainders
__constant__ int PHASE_D[PHASES] = {0}, PHASE_H[PHASES] = {0}, PHASE_W[PHASES] = {0};
__constant__ int LIST[PHASES + 1] = {0, 1}, GROUP[LISTS] = {0};  // the first list of each phase, the group of each list
__constant__ int FIRST[LISTS + 1] = {0, 9}, TAP[TAPS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};  // the taps of each list
__constant__ int BEGIN[LISTS + 1] = {0, 9};  // the first step of each list
// Of a step, a product over two units: where its first unit begins in a box, and from there to the second, << 16; in 16 bytes.
__constant__ uint32_t STEP[STEPS] = {
    0x18C0000, 0x18C0001, 0x18C0002, 0x18C0042, 0x18C0043, 0x18C0044, 0x18C0084, 0x18C0085, 0x18C0086};
//@end tables

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // weight
  const float* in2;  // bias
  float* out0;
};
//@end tensors

//@begin operands
__device__ __forceinline__ const float* input_of(const Tensors& t) { return t.in0; }
__device__ __forceinline__ const float* weights_of(const Tensors& t) { return t.in1; }
//@end operands

constexpr bool LONG = WAY == Way::tf32;
using Element = std::conditional_t<LONG, float, std::conditional_t<WAY == Way::fp16, __half, __nv_bfloat16>>;
constexpr int UNIT = 16 / sizeof(Element);  // channels
constexpr bool PAIRED = TOGETHER == 1;      // a step is two taps
constexpr int CHUNKS = UNITS / TOGETHER;

constexpr int over(int n, int by) { return (n + by - 1) / by; }

static_assert(TALL * WIDE == 64 && PHASES % TURNS == 0 && (TURNS == 1 || TURNS == APART_W));

// The copy, places of a group: a line has room for whole rows of eight.
constexpr int LEFT = LINE ? ((-ORIGIN_W) % 8 + 8) % 8 : 0;
constexpr int COPY_D = over(IN_D, STRIDE_D), COPY_H = over(IN_H, STRIDE_H);
constexpr int COPY_W = LINE ? over(over(IN_W, STRIDE_W) + LEFT, 8) * 8 : over(IN_W, STRIDE_W);
constexpr int COPY = COPY_D * COPY_H * COPY_W, COPY_PIECES = over(COPY, 256);
constexpr bool STRAIGHT = STRIDE_D * STRIDE_H * STRIDE_W == 1 && COPY_W == IN_W;
constexpr int64_t PLANES = IMAGES * GROUPS * UNITS;

constexpr int BOX_D = TILE_D + HALO_D, BOX_H = TILE_H * TALL + (LINE ? over(HALO_W, 8) : HALO_H);
constexpr int PITCH = LINE ? 8 : TILE_W * WIDE + HALO_W, PLANE = BOX_D * BOX_H * PITCH;
constexpr uint32_t BOX_BYTES = TOGETHER * PLANE * 16, BOX = (BOX_BYTES + 127) / 128 * 128;
constexpr uint32_t W_STEP = TILE_N * 32, W_STAGE = JOINT * W_STEP;

constexpr int CONSUMERS = 2, THREADS = CONSUMERS * 128 + 32;  // the last warp asks for boxes and weights
constexpr int EACH = TILE_D * TILE_H * TILE_W / CONSUMERS;    // boxes of a warpgroup
constexpr int SUMS = TILE_N / 2;                              // of a thread, of one of these
constexpr int HELD = TILE_N % 32 == 0 && TURNS == 1 ? 32 : TILE_N % 16 == 0 && TURNS <= 2 ? 16 : 8;  // channels that are stored at once
constexpr int HELD_PITCH = 64 * TURNS + 4;                                                          // so that banks differ
constexpr uint32_t SHARED = STAGES * BOX + W_STAGES * W_STAGE + CONSUMERS * HELD * HELD_PITCH * 4 + 1024;
constexpr int TILES_N = over(OUT, TILE_N), ROWS_W = LINE ? 8 : over(OUT_W, APART_W);
constexpr int ROWS_H = LINE ? over(over(OUT_W, APART_W), 8) : over(OUT_H, APART_H), ROWS_D = over(OUT_D, APART_D);
constexpr int TILES_D = over(ROWS_D, TILE_D), TILES_H = over(ROWS_H, TILE_H * TALL), TILES_W = over(ROWS_W, TILE_W * WIDE);
constexpr int TILES = IMAGES * TILES_D * TILES_H * TILES_W * (PHASES / TURNS) * TILES_N;
constexpr int64_t POINTS = int64_t(OUT_D) * OUT_H * OUT_W, ROWS = int64_t(TILES_N) * STEPS * CHUNKS * 2 * TILE_N;  // of weights
static_assert(TURNS * EACH * SUMS <= 128 && UNITS % TOGETHER == 0 && (PAIRED || TOGETHER % 2 == 0));

namespace ptx {

using Boxes = CUtensorMap;

// Boxes of a dense tensor of five dimensions, the first of neighbours: of 8 bytes each, as a side of a box has 256 at most.
inline Boxes boxes_of(const uint64_t* data, const uint64_t (&shape)[5], const uint32_t (&box)[5]) {
  static void* const entry = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found);
    TVM_FFI_ICHECK(found == cudaDriverEntryPointSuccess) << "the driver has no tensor maps";
    return address;
  }();
  Boxes map;
  cuuint64_t sizes[5], stride[4];
  for (int i = 0; i < 5; ++i) sizes[i] = shape[i];
  for (int i = 0; i < 4; ++i) stride[i] = (i ? stride[i - 1] : sizeof(uint64_t)) * sizes[i];
  const cuuint32_t step[5] = {1, 1, 1, 1, 1};
  const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT64, 5, const_cast<uint64_t*>(data), sizes, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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

__device__ __forceinline__ void load(const Boxes& map, uint8_t* to, uint64_t* bar, const int (&at)[5]) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(smem(to)), "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
               "r"(at[4]), "r"(smem(bar)) : "memory");
}

// Bytes that lie together: a multiple of 16, and aligned so at both ends.
__device__ __forceinline__ void load(const void* from, uint8_t* to, uint64_t* bar, uint32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(smem(bar)) : "memory");
}

// No swizzle: groups of eight rows of 16 bytes; `across` bytes from a group to the next along the terms, `down` along the rows.
__device__ __forceinline__ uint64_t descriptor(const uint8_t* tile, uint32_t across, uint32_t down) {
  return (smem(tile) & 0x3FFFF) >> 4 | uint64_t(across >> 4) << 16 | uint64_t(down >> 4) << 32;
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void settle() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// The warps of one of two warpgroups meet. A number in a register would take all 16 barriers of a block.
__device__ __forceinline__ void meet(int group) {
  if (group == 0) asm volatile("bar.sync 1, 128;" ::: "memory");
  else asm volatile("bar.sync 2, 128;" ::: "memory");
}

// No use of a sum moves before this.
__device__ __forceinline__ void hold(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
//@begin instruction
#define WGMMA(TYPES, SIGNS)                                                                                          \
  asm volatile(                                                                                                      \
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"                                                                     \
      "wgmma.mma_async.sync.aligned.m64n64" TYPES                                                                    \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
      "%29,%30,%31}, %32, %33, p" SIGNS "; }"                                                                        \
      : F16(0), F16(16)                                                                                              \
      : "l"(a), "l"(b), "r"(adds))
//@end instruction
// d = a b + (adds ? d : 0): the predicate spares zeroing d. The immediates are signs of a and b, then their transposes, which
// operands of 16 bits alone have.
template <class E>
__device__ __forceinline__ void wgmma(float (&d)[SUMS], uint64_t a, uint64_t b, int adds) {
  if constexpr (std::is_same_v<E, float>) WGMMA("k8.f32.tf32.tf32", ", 1, 1");
  else if constexpr (std::is_same_v<E, __half>) WGMMA("k16.f32.f16.f16", ", 1, 1, 0, 0");
  else WGMMA("k16.f32.bf16.bf16", ", 1, 1, 0, 0");
}
#undef WGMMA
#undef F16
#undef F4

__device__ __forceinline__ float to_tf32(float x) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return __uint_as_float(rounded);
}

}  // namespace ptx

struct alignas(16) Unit {
  Element of[UNIT];
};

__device__ __forceinline__ Element rounded(float x) {
  return static_cast<Element>(LONG ? static_cast<float>(ptx::to_tf32(x)) : x);
}

// The copy of the input: [image][group][unit][places], a thread a unit. Zeros where channels end, and beside a line.
__global__ void __launch_bounds__(256) copy_input(const Tensors t, Unit* copy) {
  constexpr int64_t PLACES = int64_t(IN_D) * IN_H * IN_W;
  const int piece = static_cast<int>(blockIdx.x / GROUPS % COPY_PIECES), place = piece * 256 + threadIdx.x;
  const int group = static_cast<int>(blockIdx.x % GROUPS);  // neighbouring blocks read the same lines, each other places of them
  const int64_t row = blockIdx.x / (GROUPS * COPY_PIECES);  // an image's unit
  const int unit = static_cast<int>(row % UNITS);
  const int64_t image = row / UNITS, plane = (image * GROUPS + group) * UNITS + unit;
  if (place >= COPY) return;
  int64_t from = place;
  bool real = true;
  if constexpr (!STRAIGHT) {
    const int d = place / (COPY_W * COPY_H) * STRIDE_D + GROUP_D[group], h = place / COPY_W % COPY_H * STRIDE_H + GROUP_H[group];
    const int w = (place % COPY_W - LEFT) * STRIDE_W + GROUP_W[group];
    from = (int64_t(d) * IN_H + h) * IN_W + w;
    real = d < IN_D && h < IN_H && w >= 0 && w < IN_W;
  }
  const float* x = input_of(t) + image * IMAGE + unit * UNIT * PLACES + from;
  float v[UNIT];
#pragma unroll
  for (int c = 0; c < UNIT; ++c) v[c] = real && unit * UNIT + c < IN ? (GROUPS == 1 ? __ldcs(x + c * PLACES) : x[c * PLACES]) : 0.0f;  // all asked for first
  Unit to;
#pragma unroll
  for (int c = 0; c < UNIT; ++c) to.of[c] = rounded(v[c]);
  copy[plane * COPY + place] = to;
}

// The weights as the steps read them: [phase][tile of channels][step][two units][channel], a thread a unit.
__global__ void __launch_bounds__(256) copy_weights(const Tensors t, Unit* copy) {
  const int64_t i = blockIdx.x * int64_t(256) + threadIdx.x;
  if (i >= ROWS) return;
  constexpr int64_t WHOLE = int64_t(TILES_N) * CHUNKS * 2 * TILE_N;  // units of one step of a chunk
  int phase = 0, list = 0;
  while (phase + 1 < PHASES && i >= WHOLE * BEGIN[LIST[phase + 1]]) ++phase;
  list = LIST[phase];
  const int steps = CHUNKS * (BEGIN[LIST[phase + 1]] - BEGIN[list]);
  const int64_t within = i - WHOLE * BEGIN[list];
  const int channel = static_cast<int>(within / (int64_t(steps) * 2 * TILE_N)) * TILE_N + static_cast<int>(within % TILE_N);
  int row = static_cast<int>(within / TILE_N % (2 * steps));  // a unit of the phase's, in the order of its steps
  for (; row >= 2 * CHUNKS * (BEGIN[list + 1] - BEGIN[list]); ++list) row -= 2 * CHUNKS * (BEGIN[list + 1] - BEGIN[list]);
  const int in_chunk = 2 * (BEGIN[list + 1] - BEGIN[list]), tap = FIRST[list] + row % in_chunk / TOGETHER;
  const int unit = row / in_chunk * TOGETHER + row % in_chunk % TOGETHER;
  const bool real = channel < OUT && tap < FIRST[list + 1];
  const float* w = weights_of(t) + int64_t(channel) * W_OUT + int64_t(unit) * UNIT * W_IN + (real ? TAP[tap] : 0);
  Unit to;
#pragma unroll
  for (int c = 0; c < UNIT; ++c) to.of[c] = rounded(real && unit * UNIT + c < IN ? w[int64_t(c) * W_IN] : 0.0f);
  copy[i] = to;
}

//@begin tail
// What follows the sums, for one of them: image n, channel c, place p of its plane.
__device__ __forceinline__ void finish(const Tensors& t, int64_t n, int c, int64_t p, float sum) {
  t.out0[(n * OUT + c) * POINTS + p] = k_max(sum + t.in2[c], 0.0f);
}
//@end tail

struct Tile {
  int image, phase, channel, d, h, w;  // its first phase, channel and place, the phase's places counted

  __device__ __forceinline__ explicit Tile(int i) {
    channel = i % TILES_N * TILE_N, i /= TILES_N;
    phase = i % (PHASES / TURNS) * TURNS, i /= PHASES / TURNS;
    w = i % TILES_W * (TILE_W * WIDE), i /= TILES_W;
    h = i % TILES_H * (TILE_H * TALL), i /= TILES_H;
    d = i % TILES_D * TILE_D, image = i / TILES_D;
  }
  // Where a place of a phase, `turn` from the first, lies in a plane of the output, or -1 where there is none.
  __device__ __forceinline__ int place(int turn, int d, int h, int w) const {
    const int z = d * APART_D + PHASE_D[phase], y = (LINE ? 0 : h) * APART_H + PHASE_H[phase];
    const int x = (LINE ? h * 8 + w : w) * APART_W + PHASE_W[phase + turn];
    return z < OUT_D && y < OUT_H && x < OUT_W ? (z * OUT_H + y) * OUT_W + x : -1;
  }
};

struct Barriers {
  uint64_t full[STAGES], empty[STAGES], w_full[W_STAGES], w_empty[W_STAGES];
};

// Boxes of the input, and the weights of each before the next box: so many stages of weights are ahead that a box comes in time.
__device__ __forceinline__ void produce(const ptx::Boxes& map, const Unit* weights, uint8_t* boxes, uint8_t* ring, Barriers& bar) {
  int box = 0, stage = 0;
  for (int at = blockIdx.x; at < TILES; at += gridDim.x) {
    const Tile tile(at);
    const int h = LINE ? tile.h + (ORIGIN_W + LEFT) / 8 : tile.h + ORIGIN_H, w = LINE ? 0 : (tile.w + ORIGIN_W) * 2;
    for (int phase = tile.phase; phase < tile.phase + TURNS; ++phase) {
      const int first = BEGIN[LIST[phase]] * CHUNKS, steps = BEGIN[LIST[phase + 1]] * CHUNKS - first;
      const Unit* from = weights + (int64_t(first) * TILES_N + int64_t(tile.channel / TILE_N) * steps) * (2 * TILE_N);
      for (int list = LIST[phase]; list < LIST[phase + 1]; ++list) {
        for (int chunk = 0; chunk < CHUNKS; ++chunk, ++box) {
          const int s = box % STAGES, place[5] = {w, h, tile.d + ORIGIN_D, GROUP[list] * UNITS + chunk * TOGETHER, tile.image};
          ptx::wait(&bar.empty[s], (box / STAGES & 1) ^ 1);  // parity 1 of a fresh barrier is over: the first round does not wait
          ptx::expect(&bar.full[s], BOX_BYTES);
          ptx::load(map, boxes + s * BOX, &bar.full[s], place);
          for (int step = BEGIN[list]; step < BEGIN[list + 1]; step += JOINT, ++stage, from += JOINT * 2 * TILE_N) {
            const int s = stage % W_STAGES;
            ptx::wait(&bar.w_empty[s], (stage / W_STAGES & 1) ^ 1);
            ptx::expect(&bar.w_full[s], W_STAGE);
            ptx::load(from, ring + s * W_STAGE, &bar.w_full[s], W_STAGE);
          }
        }
      }
    }
  }
}

// A warpgroup's part of what one phase multiplies, into `d`; box and stage count what was read.
__device__ __forceinline__ void consume(int phase, const int (&first)[EACH], const uint8_t* boxes, const uint8_t* ring, Barriers& bar, int& box,
                                        int& stage, float (&d)[EACH][SUMS]) {
  const int lane = threadIdx.x % 32;
  int adds = 0;
  for (int list = LIST[phase]; list < LIST[phase + 1]; ++list) {
    const int begin = BEGIN[list], end = BEGIN[list + 1];
    for (int chunk = 0; chunk < CHUNKS; ++chunk, ++box) {
      const uint64_t a = ptx::descriptor(boxes + box % STAGES * BOX, 0, WIDE == 8 ? PITCH * 16 : 128);
      ptx::wait(&bar.full[box % STAGES], box / STAGES & 1);
      for (int step = begin; step < end; step += JOINT, ++stage) {
        const uint64_t b = ptx::descriptor(ring + stage % W_STAGES * W_STAGE, TILE_N * 16, 128);
        ptx::wait(&bar.w_full[stage % W_STAGES], stage / W_STAGES & 1);
        ptx::fence();
#pragma unroll
        for (int j = 0; j < JOINT; ++j) {
#pragma unroll
          for (int m = 0; m < EACH; ++m) ptx::wgmma<Element>(d[m], a + STEP[step + j] + first[m], b + j * (W_STEP >> 4), adds + j);
        }
        ptx::commit();
        ptx::settle<1>();  // the stage before is done, and the box before where this one is fresh
        if (lane == 0 && adds) {
          ptx::arrive(&bar.w_empty[(stage - 1) % W_STAGES]);
          if (step == begin) ptx::arrive(&bar.empty[(box - 1) % STAGES]);
        }
        adds = 1;
      }
    }
  }
  ptx::settle<0>();
  if (lane == 0 && adds) ptx::arrive(&bar.w_empty[(stage - 1) % W_STAGES]), ptx::arrive(&bar.empty[(box - 1) % STAGES]);
#pragma unroll
  for (int m = 0; m < EACH; ++m) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) ptx::hold(d[m][i]);
  }
}

// Finish and store box `m` of a warpgroup, some channels at a time: `held` has a row of 64 TURNS neighbours for each.
__device__ __forceinline__ void store(const Tensors& t, const Tile& tile, int m, const float (&d)[TURNS][EACH][SUMS], float* held) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, n = group * EACH + m;
  int place[2 * TURNS];  // of the neighbours that this lane stores
#pragma unroll
  for (int k = 0; k < 2 * TURNS; ++k) {
    const int at = lane + 32 * k, one = at / TURNS;
    const int h = tile.h + n / TILE_W % TILE_H * TALL + one / WIDE, w = tile.w + n % TILE_W * WIDE + one % WIDE;
    place[k] = tile.place(at % TURNS, tile.d + n / (TILE_W * TILE_H), h, w);
  }
#pragma unroll
  for (int first = 0; first < TILE_N; first += HELD) {
    ptx::meet(group);  // what was held before is stored
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
      for (int i = 0; i < HELD / 2; ++i) {
        const int c = i / 4 * 8 + lane % 4 * 2 + i % 2, one = warp % 4 * 16 + i / 2 % 2 * 8 + lane / 4;
        held[c * HELD_PITCH + one * TURNS + turn] = d[turn][m][first / 2 + i];
      }
    }
    ptx::meet(group);
#pragma unroll 4
    for (int c = warp % 4; c < HELD; c += 4) {
      if (OUT % TILE_N != 0 && tile.channel + first + c >= OUT) break;
#pragma unroll
      for (int k = 0; k < 2 * TURNS; ++k) {
        if (place[k] >= 0) finish(t, tile.image, tile.channel + first + c, place[k], held[c * HELD_PITCH + lane + 32 * k]);
      }
    }
  }
}

__global__ void __launch_bounds__(THREADS, RESIDENT) convolve(const __grid_constant__ ptx::Boxes map, const Tensors t, const Unit* weights) {
  extern __shared__ uint8_t shared[];
  __shared__ Barriers bar;
  uint8_t *boxes = ptx::aligned(shared), *ring = boxes + STAGES * BOX;
  const int lane = threadIdx.x % 32, warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0);  // one register for all lanes
  float* held = reinterpret_cast<float*>(ring + W_STAGES * W_STAGE) + warp / 4 * (HELD * HELD_PITCH);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) ptx::init(&bar.full[s], 1), ptx::init(&bar.empty[s], CONSUMERS * 4);
    for (int s = 0; s < W_STAGES; ++s) ptx::init(&bar.w_full[s], 1), ptx::init(&bar.w_empty[s], CONSUMERS * 4);
    ptx::fence_init();
  }
  __syncthreads();
  if (warp == CONSUMERS * 4) {
    if (lane == 0) produce(map, weights, boxes, ring, bar);
    return;
  }
  int first[EACH];  // of each of its boxes, where the rows begin in a plane of the tile's box
#pragma unroll
  for (int m = 0; m < EACH; ++m) {
    const int n = warp / 4 * EACH + m;
    first[m] = (n / (TILE_W * TILE_H) * BOX_H + n / TILE_W % TILE_H * TALL) * PITCH + n % TILE_W * WIDE;
  }
  int box = 0, stage = 0;
  for (int at = blockIdx.x; at < TILES; at += gridDim.x) {
    const Tile tile(at);
    float d[TURNS][EACH][SUMS] = {};
    __syncwarp();  // stores part the lanes
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) consume(tile.phase + turn, first, boxes, ring, bar, box, stage, d[turn]);
#pragma unroll
    for (int m = 0; m < EACH; ++m) store(t, tile, m, d, held);
  }
}

void launch(const Tensors& t, float* scratch, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  auto* copy = reinterpret_cast<Unit*>(scratch);
  Unit* weights = copy + PLANES * COPY;
  copy_input<<<static_cast<unsigned>(PLANES * COPY_PIECES), 256, 0, stream>>>(t, copy);
  copy_weights<<<static_cast<unsigned>((ROWS + 255) / 256), 256, 0, stream>>>(t, weights);
  const uint64_t shape[5] = {(LINE ? 8 : COPY_W) * 2, LINE ? COPY_W / 8 : COPY_H, COPY_D, GROUPS * UNITS, IMAGES};
  const uint32_t sides[5] = {PITCH * 2, BOX_H, BOX_D, TOGETHER, 1};
  const ptx::Boxes map = ptx::boxes_of(reinterpret_cast<const uint64_t*>(copy), shape, sides);
  int processors = 1;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.device_id);
  const int room = processors * RESIDENT, blocks = TILES < room ? TILES : room;
  cudaFuncSetAttribute(convolve, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  convolve<<<static_cast<unsigned>(blocks), THREADS, SHARED, stream>>>(map, t, weights);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView bias, tvm::ffi::TensorView out,
         tvm::ffi::TensorView scratch) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(weight.data_ptr());
  t.in2 = static_cast<const float*>(bias.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, static_cast<float*>(scratch.data_ptr()), out.device());
}
//@end run
