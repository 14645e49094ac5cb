/* ---
id: kernels/gemm/level_02_cuda
title: Float32 products on tensor cores by split operands, of any strides and sizes, with their tail in registers
archs: [sm_80+]
families: [gemm]
bottlenecks: [compute, tensor]
languages: [cuda]
dtypes: [float32]
--- */
// One idea: float32 in, float32 out, tensor cores between. Each operand is cut into two parts that are exact in bfloat16 (or TF32),
// and three of the four products of parts are added. A ring of cp.async copies tiles of float32 as they are; a warp cuts what it reads.
// A sum over k may take its terms in any order, so lane t takes terms 4 t to 4 t + 3 of sixteen: one 16-byte load. Rows and columns of
// a warp's tile may be numbered in any order too, so that a lane's outputs are neighbours. The tensor cores round toward zero, which
// a sum of positive terms would show: after FOLD tiles their sums go to registers that round to nearest.
#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

//@begin math
__device__ __forceinline__ float k_max(float x, float y) { return x > y || x != x ? x : y; }
//@end math

enum class Way { bf16x3, tf32x3, bf16, fp16, tf32 };

//@begin shape
constexpr int64_t BATCH = 1, M = 2048, N = 4096, K = 8192;
constexpr int64_t A_M = 8192, A_K = 1, B_K = 4096, B_N = 1;  // elements between neighbours
constexpr int COPY_A = 4, COPY_B = 4;                        // floats that lie together and are copied at once
constexpr int TILE_M = 128, TILE_N = 128, WARP_M = 64, WARP_N = 32;
constexpr int STAGES = 4, FOLD = 4, SPLITS = 1, GROUP = 8;
constexpr Way WAY = Way::bf16x3;
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

constexpr int TILE_K = 32;
constexpr int WARPS_N = TILE_N / WARP_N, THREADS = TILE_M / WARP_M * WARPS_N * 32;
constexpr int ROWS = WARP_M / 8, COLS = WARP_N / 8;  // of a lane: neighbours
constexpr int64_t TILES_M = (M + TILE_M - 1) / TILE_M, TILES_N = (N + TILE_N - 1) / TILE_N, TILES = TILES_M * TILES_N;
constexpr int64_t STEPS = (K + TILE_K - 1) / TILE_K, EACH = (STEPS + SPLITS - 1) / SPLITS;
constexpr int SIDE_A = TILE_M * TILE_K, SIDE_B = TILE_N * TILE_K;
constexpr int SHARED = STAGES * (SIDE_A + SIDE_B) * 4;
constexpr int64_t POINTS = BATCH * M * N;
constexpr int WIDE = N % 4 == 0 ? 4 : 1;  // outputs that are stored at once

namespace ptx {

template <int BYTES>
__device__ __forceinline__ void copy(float* to, const float* from, bool real) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int size = real ? BYTES : 0;  // of none nothing is read, and zeros are written
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(size) : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int LEFT>
__device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_fp16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t to_tf32(float x) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

}  // namespace ptx

// A tile of one operand in shared memory: `SPAN` rows of TILE_K terms, or TILE_K rows of `SPAN` where ALONG is false. A lane reads
// `OWN` neighbouring rows. Words of 16 bytes change places within 128 so that the eight lanes that load at once meet eight banks.
template <int SPAN, int OWN, bool ALONG>
__host__ __device__ __forceinline__ int place(int row, int k) {
  if constexpr (ALONG) return row * TILE_K + ((k / 4 ^ row / OWN % 2 * 4) * 4 + k % 4);
  const int t = k / 4 % 4;
  return k * SPAN + (row / 4 ^ (OWN == 4 ? 2 * t : t % 2 + t / 2 * 4)) * 4 + row % 4;
}

template <int SPAN, int OWN, bool ALONG, int COPY, int64_t ROW_STRIDE, int64_t K_STRIDE>
__device__ __forceinline__ void fetch(float* to, const float* from, int64_t rows, int64_t terms) {
  constexpr int LINE = (ALONG ? TILE_K : SPAN) / COPY, STEP = THREADS / LINE;  // copies of a line, and lines at a time
  constexpr int TURN = ALONG ? 2 * OWN : 16, PERIOD = STEP < TURN ? TURN / STEP : 1;  // after which places repeat
  static_assert(THREADS % LINE == 0 && (ALONG ? SPAN : TILE_K) % STEP == 0);
  int first = threadIdx.x;
  asm volatile("" : "+r"(first));  // found anew in each step: kept over all of them, so many addresses would spill
  const int row = ALONG ? first / LINE : first % LINE * COPY, k = ALONG ? first % LINE * COPY : first / LINE;
  const int64_t along = ALONG ? terms - k : rows - row, across = ALONG ? rows - row : terms - k;
  const int left = along <= 0 ? 0 : across < SPAN + TILE_K ? static_cast<int>(across) : SPAN + TILE_K;
  from += row * ROW_STRIDE + k * K_STRIDE;
#pragma unroll
  for (int i = 0; i < (ALONG ? SPAN : TILE_K) / STEP; ++i) {
    const int some = i % PERIOD * STEP, more = i / PERIOD * PERIOD * STEP;
    const int at = place<SPAN, OWN, ALONG>(row + (ALONG ? some : 0), k + (ALONG ? 0 : some)) + more * (ALONG ? TILE_K : SPAN);
    ptx::copy<COPY * 4>(to + at, from + i * STEP * (ALONG ? ROW_STRIDE : K_STRIDE), i * STEP < left);
  }
}

// A lane's rows from `first` on, four terms of each.
template <int SPAN, int OWN, bool ALONG>
__device__ __forceinline__ void read(float (&x)[OWN][4], const float* tile, int first, int k) {
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    if constexpr (ALONG) {
      const float4 v = *reinterpret_cast<const float4*>(tile + place<SPAN, OWN, ALONG>(first + i, k));
      x[i][0] = v.x, x[i][1] = v.y, x[i][2] = v.z, x[i][3] = v.w;
    } else {
      const int j = i % 4, at = i / 4 * 4;
      const float4 v = *reinterpret_cast<const float4*>(tile + place<SPAN, OWN, ALONG>(first + at, k + j));
      x[at][j] = v.x, x[at + 1][j] = v.y, x[at + 2][j] = v.z, x[at + 3][j] = v.w;
    }
  }
}

template <class Pair>
__device__ __forceinline__ uint32_t bits(const Pair& pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

// Two floats as two bfloat16, and what the rounding took away as two more.
[[maybe_unused]] __device__ __forceinline__ void split(float x, float y, uint32_t& high, uint32_t& low) {
  high = bits(__floats2bfloat162_rn(x, y));
  low = bits(__floats2bfloat162_rn(x - __uint_as_float(high << 16), y - __uint_as_float(high & 0xFFFF0000u)));
}

[[maybe_unused]] __device__ __forceinline__ void split(float x, uint32_t& high, uint32_t& low) {
  high = ptx::to_tf32(x);
  low = ptx::to_tf32(x - __uint_as_float(high));
}

// One step of `mma`, which takes sixteen terms of 16-bit operands, or eight of TF32: which of a lane's terms go where.
constexpr bool SHORT = WAY == Way::bf16x3 || WAY == Way::bf16 || WAY == Way::fp16;
constexpr bool PARTS = WAY == Way::bf16x3 || WAY == Way::tf32x3;

template <int WORDS, int OWN>
__device__ __forceinline__ void pack(uint32_t (&high)[WORDS], uint32_t (&low)[WORDS], const float (&x)[OWN][4], int row, int step) {
  constexpr int TALL = WORDS / 2;  // rows a step: two of a, one of b
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    const float* from = x[row + i % TALL];
    const int k = i / TALL;
    if constexpr (WAY == Way::bf16x3) split(from[2 * k], from[2 * k + 1], high[i], low[i]);
    else if constexpr (WAY == Way::bf16) high[i] = bits(__floats2bfloat162_rn(from[2 * k], from[2 * k + 1]));
    else if constexpr (WAY == Way::fp16) high[i] = bits(__floats2half2_rn(from[2 * k], from[2 * k + 1]));
    else if constexpr (WAY == Way::tf32x3) split(from[2 * step + k], high[i], low[i]);
    else high[i] = ptx::to_tf32(from[2 * step + k]);
  }
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (WAY == Way::fp16) ptx::mma_fp16(c, a, b);
  else if constexpr (SHORT) ptx::mma_bf16(c, a, b);
  else ptx::mma_tf32(c, a, b);
}

__device__ __forceinline__ void multiply(float (&c)[ROWS / 2][COLS][4], const float (&a)[ROWS][4], const float (&b)[COLS][4]) {
#pragma unroll
  for (int step = 0; step < (SHORT ? 1 : 2); ++step) {
    uint32_t bh[COLS][2], bl[COLS][2];
#pragma unroll
    for (int n = 0; n < COLS; ++n) pack(bh[n], bl[n], b, n, step);
#pragma unroll
    for (int m = 0; m < ROWS / 2; ++m) {
      uint32_t ah[4], al[4];
      pack(ah, al, a, 2 * m, step);
      if constexpr (PARTS) {
#pragma unroll
        for (int n = 0; n < COLS; ++n) mma(c[m][n], al, bh[n]);
#pragma unroll
        for (int n = 0; n < COLS; ++n) mma(c[m][n], ah, bl[n]);
      }
#pragma unroll
      for (int n = 0; n < COLS; ++n) mma(c[m][n], ah, bh[n]);
    }
  }
}

template <int W, class T>
__device__ __forceinline__ void put(T* to, const T (&x)[W]) {
  if constexpr (W == 4 && sizeof(T) == 4) *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
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

__global__ void __launch_bounds__(THREADS) products(const Tensors t, float* scratch) {
  extern __shared__ __align__(16) float shared[];
  const int64_t tile = blockIdx.x % TILES, part = blockIdx.x / TILES % SPLITS, batch = blockIdx.x / (TILES * SPLITS);
  const int64_t band = tile / (GROUP * TILES_N) * GROUP, high = TILES_M - band < GROUP ? TILES_M - band : GROUP;
  const int64_t m0 = (band + tile % (GROUP * TILES_N) % high) * TILE_M, n0 = tile % (GROUP * TILES_N) / high * TILE_N;
  const int64_t begin = part * EACH, last = begin + EACH < STEPS ? begin + EACH : STEPS;
  const bool zero = BANDED && (n0 + TILE_N - 1 - m0 < LOWEST || n0 - (m0 + TILE_M - 1) > HIGHEST);
  const int steps = zero || last < begin ? 0 : static_cast<int>(last - begin);
  //@begin operands
  const float* a = t.in0 + m0 * A_M;
  const float* b = t.in1 + n0 * B_N;
  //@end operands
  constexpr bool ALONG_A = A_K == 1 || A_M != 1, ALONG_B = B_K == 1 || B_N != 1;

  const auto ask = [&](int i) {
    if (i < steps) {
      const int64_t k = (begin + i) * TILE_K;
      float* to = shared + i % STAGES * (SIDE_A + SIDE_B);
      fetch<TILE_M, ROWS, ALONG_A, COPY_A, A_M, A_K>(to, a + k * A_K, M - m0, K - k);
      fetch<TILE_N, COLS, ALONG_B, COPY_B, B_N, B_K>(to + SIDE_A, b + k * B_K, N - n0, K - k);
    }
    ptx::commit();
  };
  for (int i = 0; i < STAGES - 1; ++i) ask(i);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, k4 = lane % 4 * 4;
  const int row = warp / WARPS_N * WARP_M + g * ROWS, col = warp % WARPS_N * WARP_N + g * COLS;
  float sum[ROWS / 2][COLS][4] = {}, some[ROWS / 2][COLS][4] = {};
  for (int i = 0; i < steps; ++i) {
    ptx::wait<STAGES - 2>();
    __syncthreads();  // the tile of this step is there, and everybody is done with the one that is overwritten next
    ask(i + STAGES - 1);
    const float* from = shared + i % STAGES * (SIDE_A + SIDE_B);
#pragma unroll
    for (int k = 0; k < TILE_K; k += 16) {
      float x[ROWS][4], y[COLS][4];
      read<TILE_M, ROWS, ALONG_A>(x, from, row, k + k4);
      read<TILE_N, COLS, ALONG_B>(y, from + SIDE_A, col, k + k4);
      multiply(some, x, y);
    }
    if (i % FOLD == FOLD - 1 || i == steps - 1) {
#pragma unroll
      for (int e = 0; e < ROWS / 2 * COLS * 4; ++e) {
        float& from_cores = some[e / 4 / COLS][e / 4 % COLS][e % 4];
        sum[e / 4 / COLS][e / 4 % COLS][e % 4] += from_cores;
        from_cores = 0.0f;
      }
    }
  }

  // A lane holds rows `row` to row + ROWS - 1, and of each 2 COLS neighbours.
  const int64_t r0 = m0 + row, c0 = n0 + warp % WARPS_N * WARP_N + lane % 4 * (2 * COLS);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
#pragma unroll
    for (int c = 0; c < 2 * COLS; c += WIDE) {
      float out[WIDE];
#pragma unroll
      for (int j = 0; j < WIDE; ++j) out[j] = sum[i / 2][(c + j) % COLS][i % 2 * 2 + (c + j) / COLS];
      if (r0 + i < M && c0 + c < N) {
        if constexpr (SPLITS > 1) put(scratch + (part * POINTS + (batch * M + r0 + i) * N + c0 + c), out);
        else finish_band(t, batch * M + r0 + i, c0 + c, out);
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
  constexpr int64_t blocks = TILES * SPLITS * BATCH, ends = (POINTS / WIDE + 255) / 256;
  static_assert(blocks < (int64_t(1) << 31) && (SPLITS == 1 || ends < (int64_t(1) << 31)));
  cudaFuncSetAttribute(products, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  products<<<static_cast<unsigned>(blocks), THREADS, SHARED, stream>>>(t, scratch);
  if constexpr (SPLITS > 1) combine<<<static_cast<unsigned>(ends), 256, 0, stream>>>(t, scratch);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView bias, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(w.data_ptr());
  t.in2 = static_cast<const float*>(bias.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, nullptr, out.device());
}
//@end run
