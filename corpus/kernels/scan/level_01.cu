/* ---
id: kernels/scan/level_01_cuda
title: Running sums and products of rows, a row a block, several vectors a thread and one barrier a step
archs: [sm_80+]
families: [scan]
bottlenecks: [dram-bw, latency, sync]
languages: [cuda]
--- */
// One idea: one barrier for many elements. Each thread scans the ITEMS neighbours that it has in registers, each warp its threads' totals
// by shuffles, and UNROLL such tiles go through one barrier: every warp then scans all warps' totals by itself. What comes before a step is
// carried in double precision; products stay in double precision throughout, where partial ones would overflow first.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

//@begin math
//@end math

//@begin shape
#ifndef THREADS
#define THREADS 256
#endif
constexpr bool PRODUCT = false, REVERSE = false, EXCLUSIVE = false;
constexpr int64_t ROWS = 4096, COLUMNS = 4096;
constexpr int VECTOR = 4, ITEMS = 4, UNROLL = 32 / (THREADS / 32) < 4 ? 32 / (THREADS / 32) : 4;
//@end shape

constexpr int WARPS = THREADS / 32, TILE = THREADS * ITEMS;
static_assert(THREADS % 32 == 0 && WARPS * UNROLL <= 32, "one warp scans the totals of all");

//@begin tensors
struct Tensors {
  const float* in0;  // x
  float* out0;
};
//@end tensors

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) k_vector {
  T at[N];
};

template <int BYTES> struct k_word { using type = uint4; };
template <> struct k_word<8> { using type = uint2; };
template <> struct k_word<4> { using type = uint32_t; };
template <> struct k_word<2> { using type = uint16_t; };
template <> struct k_word<1> { using type = uint8_t; };

// Loads a vector by words of at most 16 bytes; what is read once asks not to stay in the caches.
template <int N, bool ONCE, class T>
__device__ __forceinline__ k_vector<T, N> k_fetch(const T* from) {
  using W = typename k_word<sizeof(k_vector<T, N>)>::type;
  k_vector<T, N> vector;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(vector) / sizeof(W)); ++i) {
    const W* word = reinterpret_cast<const W*>(from) + i;
    reinterpret_cast<W*>(&vector)[i] = ONCE ? __ldcs(word) : __ldg(word);
  }
  return vector;
}

template <bool ONCE, class T, int N>
__device__ __forceinline__ void k_put(T* to, const k_vector<T, N>& vector) {
  using W = typename k_word<sizeof(k_vector<T, N>)>::type;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(vector) / sizeof(W)); ++i) {
    W* word = reinterpret_cast<W*>(to) + i;
    if (ONCE) __stcs(word, reinterpret_cast<const W*>(&vector)[i]);
    else *word = reinterpret_cast<const W*>(&vector)[i];
  }
}

//@begin pieces
template <int N>
__device__ __forceinline__ void k_in(const Tensors& t, int64_t r, int64_t c, float (&x)[N]) {
  const auto p = k_fetch<N, true>(t.in0 + (r * COLUMNS + c));
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = p.at[j];
}
template <int N>
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  k_vector<float, N> o;
#pragma unroll
  for (int j = 0; j < N; ++j) o.at[j] = given[j];
  k_put<true>(t.out0 + (r * COLUMNS + c), o);
}
//@end pieces

using part_t = std::conditional_t<PRODUCT, double, float>;
constexpr float START = PRODUCT ? 1.0f : 0.0f;

template <class T>
__device__ __forceinline__ T combine(T x, T y) {
  return PRODUCT ? x * y : x + y;
}

// Each lane gets what it and the lanes before it have.
__device__ __forceinline__ part_t scanned(part_t x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const part_t before = __shfl_up_sync(~0u, x, d);
    if (threadIdx.x % 32 >= d) x = combine(before, x);
  }
  return x;
}

// Where the vector at a place of the scan's order lies in its row.
__device__ __forceinline__ int64_t column(int64_t at) { return REVERSE ? COLUMNS - VECTOR - at : at; }

__global__ void __launch_bounds__(THREADS) scan(const Tensors t) {
  __shared__ part_t totals[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int turn = 0;
  for (int64_t r = blockIdx.x; r < ROWS; r += gridDim.x) {
    double carry = START;
    for (int64_t base = int64_t(threadIdx.x) * ITEMS, step = 0; step < COLUMNS; step += TILE * UNROLL, base += TILE * UNROLL) {
      float x[UNROLL][ITEMS / VECTOR][VECTOR];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int v = 0; v < ITEMS / VECTOR; ++v) {
          const int64_t at = base + u * TILE + v * VECTOR;
          if (at < COLUMNS) {
            k_in<VECTOR>(t, r, column(at), x[u][v]);
          } else {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) x[u][v][j] = START;
          }
        }
      }
      part_t before[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        part_t own = START;
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) own = combine(own, part_t(x[u][j / VECTOR][REVERSE ? VECTOR - 1 - j % VECTOR : j % VECTOR]));
        const part_t whole = scanned(own);
        if (lane == 31) totals[turn][u * WARPS + warp] = whole;
        before[u] = __shfl_up_sync(~0u, whole, 1);
        if (lane == 0) before[u] = START;
      }
      __syncthreads();
      const part_t sums = scanned(lane < WARPS * UNROLL ? totals[turn][lane] : part_t(START));
      turn ^= 1;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const int k = u * WARPS + warp;
        const part_t others = __shfl_sync(~0u, sums, k > 0 ? k - 1 : 0);
        if (k > 0) before[u] = combine(others, before[u]);
        const part_t earlier = static_cast<part_t>(carry);
#pragma unroll
        for (int v = 0; v < ITEMS / VECTOR; ++v) {
          float made[VECTOR];
#pragma unroll
          for (int i = 0; i < VECTOR; ++i) {
            const int j = REVERSE ? VECTOR - 1 - i : i;
            const part_t upto = combine(before[u], part_t(x[u][v][j]));
            made[j] = static_cast<float>(combine(earlier, EXCLUSIVE ? before[u] : upto));
            before[u] = upto;
          }
          const int64_t at = base + u * TILE + v * VECTOR;
          if (at < COLUMNS) k_out<VECTOR>(t, r, column(at), made);
        }
      }
      carry = combine(carry, double(__shfl_sync(~0u, sums, 31)));
    }
  }
}

void launch(const Tensors& t, DLDevice device) {
  cudaSetDevice(device.device_id);
  const int64_t blocks = ROWS < 2147483647 ? ROWS : 2147483647;
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  scan<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
