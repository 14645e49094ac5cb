/* ---
id: kernels/pointwise/level_03_cuda
title: A pointwise chain that changes the layout, by tiles through shared memory
archs: [sm_80+]
families: [pointwise]
bottlenecks: [dram-bw, smem, latency]
languages: [cuda]
--- */
// One idea: whole lines on both sides. What lies across the output (channels last under an output with channels first, or the other way
// round) is read along its own order; what comes of it goes through a tile of shared memory, and is finished along the output. A thread
// asks for all vectors of its tile before it uses the first. Within a row of the tile places are exchanged (XOR), so that neither side
// waits for a bank of shared memory.
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

//@begin shape
#ifndef THREADS
#define THREADS 256
#endif
constexpr int64_t OUTER = 128, ACROSS = 64, ALONG = 15876;  // the output, the last dimension along memory
constexpr int TILE_ACROSS = 32, TILE_ALONG = 128, TILES = 1;
constexpr int VECTOR_ACROSS = 4, VECTOR_ALONG = 4;
using index_t = int32_t;
//@end shape

constexpr int64_t BLOCKS_ALONG = (ALONG + TILE_ALONG - 1) / TILE_ALONG, BLOCKS_ACROSS = (ACROSS + TILE_ACROSS - 1) / TILE_ACROSS;
constexpr int64_t BLOCKS = OUTER * BLOCKS_ACROSS * BLOCKS_ALONG;
constexpr int TILE = TILE_ACROSS * TILE_ALONG;
constexpr int LOADS = TILE / VECTOR_ACROSS / THREADS, STORES = TILE / VECTOR_ALONG / THREADS;  // vectors of a thread
static_assert(LOADS * VECTOR_ACROSS * THREADS == TILE && STORES * VECTOR_ALONG * THREADS == TILE, "threads share a tile evenly");
static_assert(BLOCKS < 2147483648, "a grid has at most 2^31 - 1 blocks");

//@begin tensors
struct Tensors {
  const float* in0;  // x, with channels last
  const float* in1;  // bias
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

// Item i of a tile whose lines go along one side: a warp takes 128 bytes of each of several lines. Gives the place along and across.
template <int VECTOR, int LINE, int LINES>
__device__ __forceinline__ void k_item(int i, int& along, int& across) {
  constexpr int VECTORS = LINE / VECTOR, WIDE = 32 / VECTOR < VECTORS ? 32 / VECTOR : VECTORS;
  constexpr int HIGH = 32 / WIDE < LINES ? 32 / WIDE : LINES, GROUPS = VECTORS / WIDE;
  along = (i % WIDE + i / (WIDE * HIGH) % GROUPS * WIDE) * VECTOR;
  across = i / WIDE % HIGH + i / (WIDE * HIGH) / GROUPS * HIGH;
}

// Where in the tile an element is kept.
__device__ __forceinline__ int k_place(int along, int across) {
  return along * TILE_ACROSS + (across ^ (along % (TILE_ACROSS < 32 ? TILE_ACROSS : 32)));
}

__global__ void __launch_bounds__(THREADS) turn(const Tensors t) {
  __shared__ float tile[TILES][TILE];
  const index_t block = static_cast<index_t>(blockIdx.x);  // neighbours share the lines across
  const index_t across0 = block % index_t(BLOCKS_ACROSS) * TILE_ACROSS;
  const index_t along0 = block / index_t(BLOCKS_ACROSS) % index_t(BLOCKS_ALONG) * TILE_ALONG;
  const index_t o = block / index_t(BLOCKS_ALONG * BLOCKS_ACROSS);
  //@begin work
  k_vector<float, VECTOR_ACROSS> q0[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    int x, y;
    k_item<VECTOR_ACROSS, TILE_ACROSS, TILE_ALONG>(i * THREADS + threadIdx.x, y, x);
    const index_t d = along0 + x, a = across0 + y;
    if (d < ALONG && a < ACROSS) q0[i] = k_fetch<VECTOR_ACROSS, true>(t.in0 + (o * (ACROSS * ALONG) + d * ACROSS + a));
  }
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    int x, y;
    k_item<VECTOR_ACROSS, TILE_ACROSS, TILE_ALONG>(i * THREADS + threadIdx.x, y, x);
    const index_t d = along0 + x, a = across0 + y;
    if (d < ALONG && a < ACROSS) {
      const auto bias = k_fetch<VECTOR_ACROSS, false>(t.in1 + a);
#pragma unroll
      for (int j = 0; j < VECTOR_ACROSS; ++j) tile[0][k_place(x, y + j)] = k_max(q0[i].at[j] + bias.at[j], 0.0f);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < STORES; ++i) {
    int x, y;
    k_item<VECTOR_ALONG, TILE_ALONG, TILE_ACROSS>(i * THREADS + threadIdx.x, x, y);
    const index_t d = along0 + x, a = across0 + y;
    if (d < ALONG && a < ACROSS) {
      k_vector<float, VECTOR_ALONG> o0;
#pragma unroll
      for (int j = 0; j < VECTOR_ALONG; ++j) o0.at[j] = tile[0][k_place(x + j, y)];
      k_put<true>(t.out0 + ((int64_t(o) * ACROSS + a) * ALONG + d), o0);
    }
  }
  //@end work
}

void launch(const Tensors& t, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  turn<<<static_cast<unsigned>(BLOCKS), THREADS, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView bias, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(bias.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
