/* ---
id: kernels/convolution/level_04_cuda
title: A depthwise convolution of any window, several rows of outputs a thread
archs: [sm_80+]
families: [conv]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: neighbouring threads make neighbouring outputs, so that all loads are whole lines, and a thread has several rows of them
// (DOWN), or several of one row (ALONG): what it loads serves every output whose window it lies in, and all its loads are asked for before
// the first is needed. Windows that overlap within a row find their elements in the L1 cache. Dimensions that a problem does not have are
// of one element. An output channel c reads input channel c / MULTIPLIER.
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
constexpr int IN_Z = 1, IN_Y = 512, IN_X = 512, OUT_Z = 1, OUT_Y = 510, OUT_X = 510;
constexpr int WINDOW_Z = 1, WINDOW_Y = 3, WINDOW_X = 3, STRIDE_Z = 1, STRIDE_Y = 1, STRIDE_X = 1;
constexpr int PAD_Z = 0, PAD_Y = 0, PAD_X = 0, STEP_Z = 1, STEP_Y = 1, STEP_X = 1;
constexpr int ACROSS = 255, ALONG = 1, DOWN = 4;
//@end shape

constexpr int TEAMS = THREADS / ACROSS > 0 ? THREADS / ACROSS : 1;  // rows of threads in a block
constexpr int TILES = (OUT_X + ACROSS * ALONG - 1) / (ACROSS * ALONG), GROUPS = (OUT_Y + DOWN - 1) / DOWN;
constexpr int64_t PLANES = BATCH * CHANNELS * MULTIPLIER, ITEMS = PLANES * OUT_Z * GROUPS * TILES;
constexpr int SPAN = (DOWN - 1) * STRIDE_Y + (WINDOW_Y - 1) * STEP_Y + 1;  // input rows of a group
constexpr int TAPS = WINDOW_Y * WINDOW_X;                                  // of a plane of the window

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

// One element, and one element stored. `ONCE` asks that it does not stay in the caches.
template <int N, bool ONCE, class T>
__device__ __forceinline__ k_vector<T, N> k_fetch(const T* from) {
  static_assert(N == 1, "windows begin anywhere");
  return {*from};
}

template <bool ONCE, class T, int N>
__device__ __forceinline__ void k_put(T* to, const k_vector<T, N>& vector) {
  static_assert(N == 1, "windows begin anywhere");
  *to = vector.at[0];
}

//@begin pieces
template <int N>
__device__ __forceinline__ void k_in(const Tensors& t, int64_t r, int64_t c, float (&x)[N]) {
  x[0] = t.in0[r * IN_X + c];
}
template <int N>
__device__ __forceinline__ void k_weight(const Tensors& t, int64_t r, int64_t c, float (&x)[N]) {
  x[0] = t.in1[r * (WINDOW_Z * TAPS) + c];
}
template <int N>
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  t.out0[r * OUT_X + c] = given[0];
}
//@end pieces

// Which row of the window of a group's output row q lies on row i of its input rows; -1 where none does.
__host__ __device__ constexpr int tap(int q, int i) {
  const int from = i - q * STRIDE_Y;
  return from >= 0 && from % STEP_Y == 0 && from / STEP_Y < WINDOW_Y ? from / STEP_Y : -1;
}

__host__ __device__ constexpr bool wanted(int i) {
  bool any = false;
  for (int q = 0; q < DOWN; ++q) any |= tap(q, i) >= 0;
  return any;
}

__global__ void __launch_bounds__(ACROSS* TEAMS) convolve(const Tensors t) {
  const int lane = threadIdx.x % ACROSS;
  const int64_t item = int64_t(blockIdx.x) * TEAMS + threadIdx.x / ACROSS;
  if (item >= ITEMS) return;
  const int o = static_cast<int>(item % TILES) * (ACROSS * ALONG) + lane;
  const int64_t rest = item / TILES;
  const int oy = static_cast<int>(rest % GROUPS) * DOWN, oz = static_cast<int>(rest / GROUPS % OUT_Z);
  const int64_t plane = rest / (GROUPS * OUT_Z), channel = plane % (CHANNELS * MULTIPLIER);
  const int64_t given = plane / (CHANNELS * MULTIPLIER) * CHANNELS + channel / MULTIPLIER;

  float sum[DOWN][ALONG] = {};
#pragma unroll 1
  for (int k = 0; k < WINDOW_Z; ++k) {
    const int z = oz * STRIDE_Z - PAD_Z + k * STEP_Z;
    if (z < 0 || z >= IN_Z) continue;
    float weight[TAPS];
#pragma unroll
    for (int j = 0; j < TAPS; ++j) {
      float one[1];
      k_weight<1>(t, channel, k * TAPS + j, one);
      weight[j] = one[0];
    }
#pragma unroll
    for (int i = 0; i < SPAN; ++i) {
      if (!wanted(i)) continue;
      const int y = oy * STRIDE_Y - PAD_Y + i;
      const int64_t r = (given * IN_Z + z) * IN_Y + y;
#pragma unroll
      for (int p = 0; p < ALONG; ++p) {
#pragma unroll
        for (int j = 0; j < WINDOW_X; ++j) {
          const int x = (o + p * ACROSS) * STRIDE_X - PAD_X + j * STEP_X;
          float one[1] = {0.0f};
          if (y >= 0 && y < IN_Y && x >= 0 && x < IN_X) k_in<1>(t, r, x, one);
#pragma unroll
          for (int q = 0; q < DOWN; ++q) {
            if (tap(q, i) >= 0) sum[q][p] = fmaf(weight[tap(q, i) * WINDOW_X + j], one[0], sum[q][p]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int q = 0; q < DOWN; ++q) {
#pragma unroll
    for (int p = 0; p < ALONG; ++p) {
      const int ox = o + p * ACROSS, row = oy + q;
      if (ox >= OUT_X || row >= OUT_Y) continue;
      const float whole[1] = {sum[q][p]};
      k_out<1>(t, (plane * OUT_Z + oz) * OUT_Y + row, ox, whole);
    }
  }
}

void launch(const Tensors& t, DLDevice device) {
  static_assert((ITEMS + TEAMS - 1) / TEAMS < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  convolve<<<static_cast<unsigned>((ITEMS + TEAMS - 1) / TEAMS), ACROSS * TEAMS, 0, stream>>>(t);
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
