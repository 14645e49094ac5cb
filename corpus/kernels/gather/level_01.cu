/* ---
id: kernels/gather/level_01_cuda
title: Rows and elements looked up by index, several lookups of every thread in flight
archs: [sm_80+]
families: [gather]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: a lookup waits twice, so have several on their way. A thread asks for the indices of UNROLL vectors, then for the vectors
// themselves, and only then works on the first. An index outside of what there is gives NaN, and no memory is read.
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
constexpr bool SHARED = true;  // one index for a whole row
constexpr int64_t OUTER = 1, GIVEN = 50000, WANTED = 4096, INNER = 768;
constexpr int VECTOR = 4, UNROLL = 2;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;    // weight
  const int64_t* in1;  // indices
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
  const auto p = k_fetch<N, false>(t.in0 + (r * INNER + c));
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = p.at[j];
}
__device__ __forceinline__ int64_t k_at(const Tensors& t, int64_t r, int64_t) { return t.in1[r]; }
template <int N>
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  k_vector<float, N> o;
#pragma unroll
  for (int j = 0; j < N; ++j) o.at[j] = given[j];
  k_put<true>(t.out0 + (r * INNER + c), o);
}
//@end pieces

constexpr int64_t ROWS = INNER > 1 ? OUTER * WANTED : OUTER, COLUMNS = INNER > 1 ? INNER : WANTED;
constexpr int64_t LANES = COLUMNS / VECTOR, ITEMS = ROWS * LANES, BLOCKS = (ITEMS + THREADS * UNROLL - 1) / (THREADS * UNROLL);
static_assert(VECTOR == 1 || (SHARED && INNER > 1), "neighbours that are looked up by themselves lie apart");
static_assert(BLOCKS < 2147483648, "a grid has at most 2^31 - 1 blocks");

__global__ void __launch_bounds__(THREADS) look(const Tensors t) {
  const int64_t first = int64_t(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
  int64_t at[UNROLL];
  float x[UNROLL][VECTOR];
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int64_t item = first + u * THREADS;
    if (item < ITEMS) at[u] = k_at(t, item / LANES, item % LANES * VECTOR);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int64_t item = first + u * THREADS;
    if (item >= ITEMS) break;
    const int64_t r = item / LANES, c = item % LANES * VECTOR;
    if (at[u] >= 0 && at[u] < GIVEN) {
      k_in<VECTOR>(t, INNER > 1 ? r / WANTED * GIVEN + at[u] : r, INNER > 1 ? c : at[u], x[u]);
    } else {
#pragma unroll
      for (int j = 0; j < VECTOR; ++j) x[u][j] = NAN;
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int64_t item = first + u * THREADS;
    if (item < ITEMS) k_out<VECTOR>(t, item / LANES, item % LANES * VECTOR, x[u]);
  }
}

void launch(const Tensors& t, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  look<<<static_cast<unsigned>(BLOCKS), THREADS, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView weight, tvm::ffi::TensorView indices, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(weight.data_ptr());
  t.in1 = static_cast<const int64_t*>(indices.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
