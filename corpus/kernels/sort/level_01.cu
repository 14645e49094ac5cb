/* ---
id: kernels/sort/level_01_cuda
title: Where the largest element of each row or column stands, as one key of value and place
archs: [sm_80+]
families: [sort, reduction]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: a key that sorts as wanted. The bits of a float, turned so that integers compare as the numbers do, stand over the complement
// of its place: the largest key is the largest value at its first place, NaN above all, in one comparison. Where there are few results,
// several blocks share one (SPLIT) and keep its key in the output itself by atomicMax; a last small kernel takes the places out.
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
constexpr bool SMALLEST = false;
constexpr int64_t OUTER = 128, LENGTH = 4096, INNER = 4095;
constexpr int ACROSS = 32, SPLIT = 1, UNROLL = 8;
//@end shape

constexpr int DOWN = THREADS / ACROSS;  // threads that share a result
constexpr int64_t RESULTS = OUTER * INNER, GROUPS = (RESULTS + ACROSS - 1) / ACROSS, PIECE = (LENGTH + SPLIT - 1) / SPLIT;
static_assert(DOWN * ACROSS == THREADS && (DOWN & (DOWN - 1)) == 0, "threads that share a result are a power of two");
static_assert(LENGTH < 4294967296, "a place has 32 bits of a key");

//@begin tensors
struct Tensors {
  const float* in0;  // x
  int64_t* out0;
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
  const auto p = k_fetch<N, true>(t.in0 + (r * (INNER > 1 ? INNER : LENGTH) + c));
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = p.at[j];
}
//@end pieces

// Integers that compare as the numbers do: NaN is the largest, and zero has one sign.
__device__ __forceinline__ uint32_t ordered(float x) {
  if (x != x) return ~0u;
  const uint32_t bits = __float_as_uint((SMALLEST ? -x : x) + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__global__ void __launch_bounds__(THREADS) find(const Tensors t) {
  __shared__ unsigned long long keys[DOWN][ACROSS];
  // Neighbouring threads have neighbouring elements: of a row, or of as many columns.
  const int across = INNER == 1 ? threadIdx.x / DOWN : threadIdx.x % ACROSS, down = INNER == 1 ? threadIdx.x % DOWN : threadIdx.x / ACROSS;
  const int64_t group = blockIdx.x % GROUPS, split = blockIdx.x / GROUPS;
  const int64_t asked = group * ACROSS + across;
  const bool real = asked < RESULTS;  // the last block may hold results past the last: they work on it again
  const int64_t result = real ? asked : RESULTS - 1, o = result / INNER, inner = result % INNER;
  const int64_t begin = split * PIECE, end = begin + PIECE < LENGTH ? begin + PIECE : LENGTH;
  uint32_t best = 0, place = static_cast<uint32_t>(begin);
  for (int64_t first = begin + down; first < end; first += DOWN * UNROLL) {
    float x[UNROLL][1];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t at = first + u * DOWN;
      if (at < end) k_in<1>(t, INNER == 1 ? o : o * LENGTH + at, INNER == 1 ? at : inner, x[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t at = first + u * DOWN;
      const uint32_t value = at < end ? ordered(x[u][0]) : 0;
      if (value > best) {
        best = value;
        place = static_cast<uint32_t>(at);
      }
    }
  }
  unsigned long long key = static_cast<unsigned long long>(best) << 32 | static_cast<uint32_t>(~place);
  keys[down][across] = key;
  for (int d = DOWN / 2; d > 0; d /= 2) {
    __syncthreads();
    if (down < d) {
      const unsigned long long other = keys[down + d][across];
      key = other > key ? other : key;
      keys[down][across] = key;
    }
  }
  if (!real || down > 0) return;
  if constexpr (SPLIT > 1) {
    atomicMax(reinterpret_cast<unsigned long long*>(t.out0) + result, key);
  } else {
    t.out0[result] = static_cast<uint32_t>(~key);
  }
}

__global__ void __launch_bounds__(256) take(const Tensors t) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < RESULTS) t.out0[i] = static_cast<uint32_t>(~static_cast<unsigned long long>(t.out0[i]));
}

void launch(const Tensors& t, DLDevice device) {
  static_assert(GROUPS * SPLIT < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (SPLIT > 1) cudaMemsetAsync(t.out0, 0, RESULTS * sizeof(int64_t), stream);
  find<<<static_cast<unsigned>(GROUPS * SPLIT), THREADS, 0, stream>>>(t);
  if (SPLIT > 1) take<<<static_cast<unsigned>((RESULTS + 255) / 256), 256, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.out0 = static_cast<int64_t*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
