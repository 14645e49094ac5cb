/* ---
id: kernels/pooling/level_02_cuda
title: Pooling of channels last, a vector of channels a thread
archs: [sm_80+]
families: [pooling]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: with channels last each place of a window is a line of channels. Neighbouring threads take neighbouring channels, so that every
// load is whole, and what windows share is found in a cache. Dimensions that a problem does not have are of one element.
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
__device__ __forceinline__ float k_max(float x, float y) { return x > y || x != x ? x : y; }
//@end math

//@begin shape
#ifndef THREADS
#define THREADS 256
#endif
constexpr bool MAXIMUM = true, PADDING_COUNTS = true, ADAPTIVE = false;
constexpr int64_t PLANES = 64, DIVISOR = 0;
constexpr int IN_Z = 1, IN_Y = 56, IN_X = 56, OUT_Z = 1, OUT_Y = 28, OUT_X = 28;
constexpr int WINDOW_Z = 1, WINDOW_Y = 2, WINDOW_X = 2, STRIDE_Z = 1, STRIDE_Y = 2, STRIDE_X = 2;
constexpr int PAD_Z = 0, PAD_Y = 0, PAD_X = 0, STEP_Z = 1, STEP_Y = 1, STEP_X = 1;
constexpr int CHANNELS = 64, VECTOR = 4;
//@end shape

constexpr int VECTORS = CHANNELS / VECTOR;
constexpr int64_t ITEMS = PLANES * OUT_Z * OUT_Y * OUT_X * VECTORS;
constexpr int UNROLLED = ADAPTIVE || WINDOW_Y * WINDOW_X > 16 ? 1 : 4;

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
  const auto p = k_fetch<N, false>(t.in0 + (r * CHANNELS + c));
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = p.at[j];
}
template <int N>
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  k_vector<float, N> o;
#pragma unroll
  for (int j = 0; j < N; ++j) o.at[j] = given[j];
  k_put<false>(t.out0 + (r * CHANNELS + c), o);
}
//@end pieces

// The first place of an output's window along a dimension, which may lie in the padding, and how many places the window has.
template <int IN, int OUT, int STRIDE, int PAD>
__device__ __forceinline__ int first(int o) {
  return ADAPTIVE ? static_cast<int>(int64_t(o) * IN / OUT) : o * STRIDE - PAD;
}
template <int IN, int OUT, int WINDOW>
__device__ __forceinline__ int count(int o) {
  return ADAPTIVE ? static_cast<int>((int64_t(o + 1) * IN + OUT - 1) / OUT - int64_t(o) * IN / OUT) : WINDOW;
}

// How many places of a window an average counts along a dimension.
template <int IN, int OUT, int WINDOW, int STRIDE, int PAD>
__device__ __forceinline__ int counted(int o) {
  const int from = first<IN, OUT, STRIDE, PAD>(o), past = from + count<IN, OUT, WINDOW>(o), most = IN + (PADDING_COUNTS ? PAD : 0);
  return (past < most ? past : most) - (PADDING_COUNTS || from > 0 ? from : 0);
}

__device__ __forceinline__ float combine(float x, float y) { return MAXIMUM ? k_max(x, y) : x + y; }

__global__ void __launch_bounds__(THREADS) pool(const Tensors t) {
  const int64_t item = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (item >= ITEMS) return;
  const int c = static_cast<int>(item % VECTORS) * VECTOR;
  const int64_t place = item / VECTORS;
  const int ox = static_cast<int>(place % OUT_X), oy = static_cast<int>(place / OUT_X % OUT_Y);
  const int oz = static_cast<int>(place / (OUT_X * OUT_Y) % OUT_Z);
  const int64_t plane = place / (int64_t(OUT_X) * OUT_Y * OUT_Z);
  const int x0 = first<IN_X, OUT_X, STRIDE_X, PAD_X>(ox), y0 = first<IN_Y, OUT_Y, STRIDE_Y, PAD_Y>(oy);
  const int z0 = first<IN_Z, OUT_Z, STRIDE_Z, PAD_Z>(oz);

  float whole[VECTOR];
#pragma unroll
  for (int j = 0; j < VECTOR; ++j) whole[j] = MAXIMUM ? -INFINITY : 0.0f;
  for (int k = 0; k < count<IN_Z, OUT_Z, WINDOW_Z>(oz); ++k) {
    const int z = z0 + k * STEP_Z;
    if (z < 0 || z >= IN_Z) continue;
#pragma unroll UNROLLED
    for (int l = 0; l < count<IN_Y, OUT_Y, WINDOW_Y>(oy); ++l) {
      const int y = y0 + l * STEP_Y;
      if (y < 0 || y >= IN_Y) continue;
#pragma unroll UNROLLED
      for (int m = 0; m < count<IN_X, OUT_X, WINDOW_X>(ox); ++m) {
        const int x = x0 + m * STEP_X;
        if (x < 0 || x >= IN_X) continue;
        float one[VECTOR];
        k_in<VECTOR>(t, ((plane * IN_Z + z) * IN_Y + y) * IN_X + x, c, one);
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) whole[j] = combine(one[j], whole[j]);
      }
    }
  }
  if constexpr (!MAXIMUM) {
    const int64_t each = int64_t(counted<IN_Z, OUT_Z, WINDOW_Z, STRIDE_Z, PAD_Z>(oz)) *
                         counted<IN_Y, OUT_Y, WINDOW_Y, STRIDE_Y, PAD_Y>(oy) * counted<IN_X, OUT_X, WINDOW_X, STRIDE_X, PAD_X>(ox);
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) whole[j] /= static_cast<float>(DIVISOR ? DIVISOR : each);
  }
  k_out<VECTOR>(t, place, c, whole);
}

void launch(const Tensors& t, DLDevice device) {
  static_assert((ITEMS + THREADS - 1) / THREADS < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  pool<<<static_cast<unsigned>((ITEMS + THREADS - 1) / THREADS), THREADS, 0, stream>>>(t);
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
