/* ---
id: kernels/gemm/level_03_cuda
title: Float32 products in three bfloat16 products of wgmma, the operands cut beforehand, with their tail in registers
archs: [sm_90]
families: [gemm]
bottlenecks: [tensor]
languages: [cuda]
dtypes: [float32]
--- */
// One idea more than level 2: cut each operand once, in a kernel before, into two bfloat16 matrices whose terms lie together, whatever
// the strides were. Then TMA brings tiles of both parts of both operands, zeros where they end, and wgmma multiplies from shared memory
// at full rate: low high, high low, high high. After FOLD tiles the sums, which the tensor cores round toward zero, are added to others.
#include <cmath>
#include <cstdint>

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

//@begin shape
constexpr int64_t BATCH = 1, M = 2048, N = 4096, K = 8192;
constexpr int64_t A_M = 8192, A_K = 1, B_K = 4096, B_N = 1;  // elements between neighbours
constexpr int64_t A_BATCH = 1, B_BATCH = 1;                  // different matrices of each
constexpr int STAGES = 3, FOLD = 2, SPLITS = 1, GROUP = 8;
constexpr bool BANDED = false;
constexpr int64_t LOWEST = 0, HIGHEST = 0;  // of column - row: outputs outside are zero
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // w
  const float* in2;  // bias
  float* out0;
};
//@end tensors

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64;  // rows of 128 bytes
constexpr uint32_t SIDE = 128 * TILE_K * 2, STAGE = 4 * SIDE, SHARED = STAGES * STAGE + 1024;
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;
constexpr int64_t TILES_M = (M + TILE_M - 1) / TILE_M, TILES_N = (N + TILE_N - 1) / TILE_N, TILES = TILES_M * TILES_N;
constexpr int64_t STEPS = (K + TILE_K - 1) / TILE_K, EACH = (STEPS + SPLITS - 1) / SPLITS;
constexpr int64_t LONG_K = (K + 7) / 8 * 8;  // rows of parts begin at multiples of 16 bytes
constexpr int64_t PARTS_A = A_BATCH * M * LONG_K, PARTS_B = B_BATCH * N * LONG_K;
constexpr int64_t POINTS = BATCH * M * N;
constexpr int WIDE = N % 2 == 0 ? 2 : 1;  // outputs that are stored at once

namespace ptx {

using Map = CUtensorMap;

// Boxes of 128 rows of 64 terms, of `batches` matrices of rows x depth.
inline Map map_of(const __nv_bfloat16* data, int64_t depth, int64_t rows, int64_t batches) {
  static void* const entry = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found);
    TVM_FFI_ICHECK(found == cudaDriverEntryPointSuccess) << "the driver has no tensor maps";
    return address;
  }();
  Map map;
  const cuuint64_t wide = depth, high = rows, deep = batches, shape[3] = {wide, high, deep}, stride[2] = {wide * 2, wide * high * 2};
  const cuuint32_t box[3] = {64, 128, 1}, step[3] = {1, 1, 1};
  const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<__nv_bfloat16*>(data), shape, stride, box, step,
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

#define F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
// d = a b + (adds ? d : 0): the predicate spares zeroing d. The immediates are signs of a and b, then their transposes.
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
#undef F8

}  // namespace ptx

//@begin operands
__device__ __forceinline__ const float* matrix_a(const Tensors& t, int64_t batch) { return t.in0; }
__device__ __forceinline__ const float* matrix_b(const Tensors& t, int64_t batch) { return t.in1; }
//@end operands

// 64 rows and 64 terms of an operand, read along what lies together, written along the terms in both parts.
template <bool FIRST>
__global__ void __launch_bounds__(256) cut(const Tensors t, __nv_bfloat16* high, __nv_bfloat16* low) {
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
      const float x = tile[row][k], y = tile[row][k + 1];
      const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
      const int64_t at = (batch * ROWS + r0 + row) * LONG_K + k0 + k;
      *reinterpret_cast<__nv_bfloat162*>(high + at) = h;
      *reinterpret_cast<__nv_bfloat162*>(low + at) = __floats2bfloat162_rn(x - __bfloat162float(h.x), y - __bfloat162float(h.y));
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
  ptx::Map ah, al, bh, bl;
};

__global__ void __launch_bounds__(THREADS, 1) products(const __grid_constant__ Maps maps, const Tensors t, float* scratch) {
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
      ptx::load(maps.ah, to, &full[s], k, row, of_a);
      ptx::load(maps.al, to + SIDE, &full[s], k, row, of_a);
      ptx::load(maps.bh, to + 2 * SIDE, &full[s], k, col, of_b);
      ptx::load(maps.bl, to + 3 * SIDE, &full[s], k, col, of_b);
    }
    return;
  }
  ptx::many_registers();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, half = group - 1;
  float sum[64] = {}, d[64];
  for (int i = 0; i < steps;) {
    const int stop = steps - i < FOLD ? steps : i + FOLD;
    for (int first = i; i < stop; ++i) {
      const uint8_t* from = ring + i % STAGES * STAGE;
      ptx::wait(&full[i % STAGES], i / STAGES & 1);
      const uint64_t ah = ptx::descriptor(from + half * (SIDE / 2)), al = ptx::descriptor(from + SIDE + half * (SIDE / 2));
      const uint64_t bh = ptx::descriptor(from + 2 * SIDE), bl = ptx::descriptor(from + 3 * SIDE);
      ptx::fence();
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k) ptx::wgmma(d, al + 2 * k, bh + 2 * k, i - first + k);  // 16 terms: 32 bytes, 2 of a descriptor
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k) ptx::wgmma(d, ah + 2 * k, bl + 2 * k, 1);
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k) ptx::wgmma(d, ah + 2 * k, bh + 2 * k, 1);
      ptx::commit();
      ptx::settle<1>();  // the tile before is done
      if (i > first && lane == 0) ptx::arrive(&empty[(i - 1) % STAGES]);
    }
    ptx::settle<0>();
#pragma unroll
    for (int e = 0; e < 64; ++e) sum[e] += d[e];
    if (lane == 0) ptx::arrive(&empty[(i - 1) % STAGES]);
  }
  const int64_t r0 = m0 + half * 64 + warp * 16 + lane / 4, c0 = n0 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int64_t r = r0 + i % 2 * 8, c = c0 + i / 2 * 8;
#pragma unroll
    for (int j = 0; j < 2; j += WIDE) {
      float out[WIDE];
#pragma unroll
      for (int e = 0; e < WIDE; ++e) out[e] = sum[2 * i + j + e];
      if (r < M && c + j < N) {
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

void launch(const Tensors& t, float* scratch, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  constexpr int64_t across = (LONG_K + 63) / 64, of_a = across * ((M + 63) / 64) * A_BATCH, of_b = across * ((N + 63) / 64) * B_BATCH;
  constexpr int64_t blocks = TILES * SPLITS * BATCH, ends = (POINTS / WIDE + 255) / 256;
  auto* ah = reinterpret_cast<__nv_bfloat16*>(scratch);
  auto *al = ah + PARTS_A, *bh = al + PARTS_A, *bl = bh + PARTS_B;
  float* sums = scratch + PARTS_A + PARTS_B;
  cut<true><<<static_cast<unsigned>(of_a), 256, 0, stream>>>(t, ah, al);
  cut<false><<<static_cast<unsigned>(of_b), 256, 0, stream>>>(t, bh, bl);
  const Maps maps = {ptx::map_of(ah, LONG_K, M, A_BATCH), ptx::map_of(al, LONG_K, M, A_BATCH),
                     ptx::map_of(bh, LONG_K, N, B_BATCH), ptx::map_of(bl, LONG_K, N, B_BATCH)};
  cudaFuncSetAttribute(products, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  products<<<static_cast<unsigned>(blocks), THREADS, SHARED, stream>>>(maps, t, sums);
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
