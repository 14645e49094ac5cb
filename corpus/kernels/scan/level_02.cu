/* ---
id: kernels/scan/level_02_cuda
title: Running sums and products down the columns, a thread a column, many rows in flight
archs: [sm_80+]
families: [scan]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: where the scanned dimension is not the last, neighbouring threads take neighbouring columns and need nothing of each other.
// Only the loads must not wait for the chain: UNROLL rows are asked for before the first of them is added.
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
#define THREADS 128
#endif
constexpr bool PRODUCT = false, REVERSE = false, EXCLUSIVE = false;
constexpr int64_t OUTER = 16, LENGTH = 1024, INNER = 1024;
constexpr int VECTOR = 1, UNROLL = 8;
//@end shape

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
  const auto p = k_fetch<N, true>(t.in0 + (r * INNER + c));
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = p.at[j];
}
template <int N>
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  k_vector<float, N> o;
#pragma unroll
  for (int j = 0; j < N; ++j) o.at[j] = given[j];
  k_put<true>(t.out0 + (r * INNER + c), o);
}
//@end pieces

constexpr int64_t LANES = INNER / VECTOR, CHAINS = OUTER * LANES;

__global__ void __launch_bounds__(THREADS) scan(const Tensors t) {
  const int64_t chain = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (chain >= CHAINS) return;
  const int64_t c = chain % LANES * VECTOR, first = chain / LANES * LENGTH;
  double sums[VECTOR];
#pragma unroll
  for (int j = 0; j < VECTOR; ++j) sums[j] = PRODUCT ? 1.0 : 0.0;
  for (int64_t i = 0; i < LENGTH; i += UNROLL) {
    float x[UNROLL][VECTOR];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (LENGTH % UNROLL == 0 || i + u < LENGTH) k_in<VECTOR>(t, first + (REVERSE ? LENGTH - 1 - i - u : i + u), c, x[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (LENGTH % UNROLL != 0 && i + u >= LENGTH) break;
      float made[VECTOR];
#pragma unroll
      for (int j = 0; j < VECTOR; ++j) {
        const double before = sums[j];
        sums[j] = PRODUCT ? before * x[u][j] : before + x[u][j];
        made[j] = static_cast<float>(EXCLUSIVE ? before : sums[j]);
      }
      k_out<VECTOR>(t, first + (REVERSE ? LENGTH - 1 - i - u : i + u), c, made);
    }
  }
}

void launch(const Tensors& t, DLDevice device) {
  static_assert((CHAINS + THREADS - 1) / THREADS < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  scan<<<static_cast<unsigned>((CHAINS + THREADS - 1) / THREADS), THREADS, 0, stream>>>(t);
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
