/* ---
id: kernels/pointwise/level_02_cuda
title: A pointwise chain over 16-byte vectors, several of them in flight in each thread
archs: [sm_80+]
families: [pointwise]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: keep enough bytes in flight. A thread asks for UNROLL vectors of 16 bytes of every input before it uses the first, so the
// memory system always has work; neighbouring threads take neighbouring vectors. Sizes are compile-time constants, so the division that
// finds a broadcast element's row and column is a multiplication and a shift.
#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

//@begin math
__device__ __forceinline__ float k_erf(float x) { return erff(x); }
__device__ __forceinline__ float k_sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
//@end math

//@begin shape
#ifndef THREADS
#define THREADS 256
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
constexpr int64_t ROWS = 4096, COLUMNS = 4096;
constexpr int VECTOR = 4;
constexpr bool PERSISTENT = false;
using index_t = uint32_t;
//@end shape

constexpr int64_t POINTS = ROWS * COLUMNS;
constexpr int64_t TILE = int64_t(THREADS) * VECTOR * UNROLL;
constexpr int64_t TILES = (POINTS + TILE - 1) / TILE;
constexpr bool WHOLE = POINTS % TILE == 0;

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // gate
  const float* in2;  // scale
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

__global__ void __launch_bounds__(THREADS) points(const Tensors t) {
  for (int64_t tile = blockIdx.x; tile < TILES; tile += gridDim.x) {
    const int64_t first = tile * TILE + threadIdx.x * VECTOR;
    //@begin work
    k_vector<float, VECTOR> x[UNROLL], gate[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      const int64_t e = first + i * (THREADS * VECTOR);
      if (WHOLE || e < POINTS) {
        x[i] = k_fetch<VECTOR, true>(t.in0 + e);
        gate[i] = k_fetch<VECTOR, true>(t.in1 + e);
      }
    }
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      const int64_t e = first + i * (THREADS * VECTOR);
      if (WHOLE || e < POINTS) {
        const index_t r = static_cast<index_t>(e) / static_cast<index_t>(COLUMNS);
        const index_t c = static_cast<index_t>(e) - r * static_cast<index_t>(COLUMNS);
        const k_vector<float, VECTOR> scale = k_fetch<VECTOR, false>(t.in2 + c);
        k_vector<float, VECTOR> o;
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
          const float v = x[i].at[j] * scale.at[j];
          o.at[j] = 0.5f * v * (1.0f + k_erf(v * 0.707106781f)) * k_sigmoid(gate[i].at[j]);
        }
        k_put<true>(t.out0 + e, o);
      }
    }
    //@end work
  }
}

void launch(const Tensors& t, DLDevice device) {
  cudaSetDevice(device.device_id);
  int64_t blocks = TILES < 2147483647 ? TILES : 2147483647;
  if (PERSISTENT) {
    static const int64_t resident = [&] {
      int each = 1, processors = 1;
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, points, THREADS, 0);
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.device_id);
      return static_cast<int64_t>(each) * processors;
    }();
    blocks = resident < blocks ? resident : blocks;
  }
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  points<<<static_cast<unsigned>(blocks), THREADS, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView gate, tvm::ffi::TensorView scale, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(gate.data_ptr());
  t.in2 = static_cast<const float*>(scale.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
