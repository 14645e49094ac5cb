/* ---
id: kernels/convolution/level_05_cuda
title: A depthwise convolution of channels last, vectors of channels for neighbouring places a thread
archs: [sm_80+]
families: [conv]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: with channels last a place is a line of channels, and the weights of a channel are the same at every place. Neighbouring threads
// take neighbouring channels; a thread has ALONG x DOWN neighbouring outputs, which share what it loads, and a block keeps the weights of its
// channels in shared memory, turned so that a vector of them is one load, for as many outputs as it makes (EACH times a tile of every
// thread). Dimensions that a problem does not have are of one element.
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
constexpr int64_t BATCH = 16, CHANNELS = 64;
constexpr int MULTIPLIER = 1;
constexpr int IN_Z = 1, IN_Y = 112, IN_X = 112, OUT_Z = 1, OUT_Y = 112, OUT_X = 112;
constexpr int WINDOW_Z = 1, WINDOW_Y = 3, WINDOW_X = 3, STRIDE_Z = 1, STRIDE_Y = 1, STRIDE_X = 1;
constexpr int PAD_Z = 0, PAD_Y = 1, PAD_X = 1, STEP_Z = 1, STEP_Y = 1, STEP_X = 1;
constexpr int VECTOR = 4, ACROSS = 16, ALONG = 4, DOWN = 2, EACH = 4;
//@end shape

static_assert(MULTIPLIER == 1);
constexpr int HELD = ACROSS * VECTOR, TEAMS = THREADS / ACROSS;  // channels of a block, and its rows of threads
constexpr int TILES = (OUT_X + ALONG - 1) / ALONG, GROUPS = (OUT_Y + DOWN - 1) / DOWN;
constexpr int64_t ITEMS = BATCH * OUT_Z * GROUPS * TILES, SHARES = (CHANNELS + HELD - 1) / HELD;
constexpr int64_t BLOCKS = (ITEMS + TEAMS * EACH - 1) / (TEAMS * EACH);  // of a share of the channels
constexpr int SPAN = (DOWN - 1) * STRIDE_Y + (WINDOW_Y - 1) * STEP_Y + 1;  // input rows of a group
constexpr int WIDTH = (ALONG - 1) * STRIDE_X + (WINDOW_X - 1) * STEP_X + 1;
constexpr int TAPS = WINDOW_Y * WINDOW_X;  // of a plane of the window

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // weight
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
__device__ __forceinline__ void k_weight(const Tensors& t, int64_t r, int64_t c, float (&x)[N]) {
  x[0] = t.in1[r * (WINDOW_Z * TAPS) + c];
}
template <int N>
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  k_vector<float, N> o;
#pragma unroll
  for (int j = 0; j < N; ++j) o.at[j] = given[j];
  k_put<false>(t.out0 + (r * CHANNELS + c), o);
}
//@end pieces

// Which element of the window of output p lies on place i of what a tile reads along a dimension; -1 where none does.
template <int STRIDE, int STEP, int WINDOW>
__host__ __device__ constexpr int tap(int p, int i) {
  const int from = i - p * STRIDE;
  return from >= 0 && from % STEP == 0 && from / STEP < WINDOW ? from / STEP : -1;
}

template <int STRIDE, int STEP, int WINDOW, int OUTPUTS>
__host__ __device__ constexpr bool wanted(int i) {
  bool any = false;
  for (int p = 0; p < OUTPUTS; ++p) any |= tap<STRIDE, STEP, WINDOW>(p, i) >= 0;
  return any;
}

__global__ void __launch_bounds__(ACROSS* TEAMS) convolve(const Tensors t) {
  __shared__ k_vector<float, VECTOR> weight[WINDOW_Z * TAPS][ACROSS];
  const int64_t share = blockIdx.x / BLOCKS;
  for (int i = threadIdx.x; i < WINDOW_Z * TAPS * HELD; i += ACROSS * TEAMS) {
    const int at = i % (WINDOW_Z * TAPS), channel = i / (WINDOW_Z * TAPS);
    float one[1] = {0.0f};
    if (share * HELD + channel < CHANNELS) k_weight<1>(t, share * HELD + channel, at, one);
    weight[at][channel / VECTOR].at[channel % VECTOR] = one[0];
  }
  __syncthreads();
  const int own = threadIdx.x % ACROSS;
  const int64_t c = share * HELD + own * VECTOR;
  if (c >= CHANNELS) return;
#pragma unroll 1
  for (int turn = 0; turn < EACH; ++turn) {
    const int64_t item = (blockIdx.x % BLOCKS * EACH + turn) * TEAMS + threadIdx.x / ACROSS;
    if (item >= ITEMS) return;
    const int o = static_cast<int>(item % TILES) * ALONG, oy = static_cast<int>(item / TILES % GROUPS) * DOWN;
    const int oz = static_cast<int>(item / (TILES * GROUPS) % OUT_Z);
    const int64_t image = item / (int64_t(TILES) * GROUPS * OUT_Z);
    float sum[DOWN][ALONG][VECTOR] = {};
#pragma unroll 1
    for (int k = 0; k < WINDOW_Z; ++k) {
      const int z = oz * STRIDE_Z - PAD_Z + k * STEP_Z;
      if (z < 0 || z >= IN_Z) continue;
#pragma unroll
      for (int i = 0; i < SPAN; ++i) {
        if (!wanted<STRIDE_Y, STEP_Y, WINDOW_Y, DOWN>(i)) continue;
        const int y = oy * STRIDE_Y - PAD_Y + i;
        const int64_t row = ((image * IN_Z + z) * IN_Y + y) * IN_X;
        float x[WIDTH][VECTOR] = {};
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
          const int at = o * STRIDE_X - PAD_X + j;
          const bool inside = y >= 0 && y < IN_Y && at >= 0 && at < IN_X;
          if (wanted<STRIDE_X, STEP_X, WINDOW_X, ALONG>(j) && inside) k_in<VECTOR>(t, row + at, c, x[j]);
        }
#pragma unroll
        for (int q = 0; q < DOWN; ++q) {
          const int down = tap<STRIDE_Y, STEP_Y, WINDOW_Y>(q, i);
          if (down < 0) continue;
#pragma unroll
          for (int m = 0; m < WINDOW_X; ++m) {
            const auto w = weight[k * TAPS + down * WINDOW_X + m][own];
#pragma unroll
            for (int p = 0; p < ALONG; ++p) {
#pragma unroll
              for (int v = 0; v < VECTOR; ++v) sum[q][p][v] = fmaf(w.at[v], x[p * STRIDE_X + m * STEP_X][v], sum[q][p][v]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int q = 0; q < DOWN; ++q) {
#pragma unroll
      for (int p = 0; p < ALONG; ++p) {
        const int ox = o + p, out = oy + q;
        if (ox < OUT_X && out < OUT_Y) k_out<VECTOR>(t, ((image * OUT_Z + oz) * OUT_Y + out) * OUT_X + ox, c, sum[q][p]);
      }
    }
  }
}

void launch(const Tensors& t, DLDevice device) {
  static_assert(BLOCKS * SHARES < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  convolve<<<static_cast<unsigned>(BLOCKS * SHARES), ACROSS * TEAMS, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(weight.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
