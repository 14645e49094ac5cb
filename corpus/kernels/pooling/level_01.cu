/* ---
id: kernels/pooling/level_01_cuda
title: Pooling, first down the columns in registers, then along the row in shared memory
archs: [sm_80+]
families: [pooling]
bottlenecks: [dram-bw, smem, latency]
languages: [cuda]
--- */
// One idea: a window's maximum or sum is that of its columns. Neighbouring threads read neighbouring elements of each input row, whatever
// the stride of the windows, and combine the rows in registers; one line a row of outputs goes through shared memory, where each output
// takes its few places. A thread has several rows of outputs (DOWN), which share the input rows they overlap in, and several outputs of a
// row (ALONG), so that many loads are in flight. Dimensions that a problem does not have are of one element.
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
constexpr int ACROSS = 28, ALONG = 1, DOWN = 2, LINE = 56;
//@end shape

constexpr int TEAMS = THREADS / ACROSS > 0 ? THREADS / ACROSS : 1;  // rows of threads in a block
constexpr int TILES = (OUT_X + ACROSS * ALONG - 1) / (ACROSS * ALONG), GROUPS = (OUT_Y + DOWN - 1) / DOWN;
constexpr int64_t ITEMS = PLANES * OUT_Z * GROUPS * TILES;
constexpr int SPAN = ADAPTIVE ? WINDOW_Y : (DOWN - 1) * STRIDE_Y + (WINDOW_Y - 1) * STEP_Y + 1;  // input rows of a group
constexpr int HELD = (LINE + ACROSS - 1) / ACROSS;  // places of the line that a thread has
constexpr int UNROLLED = SPAN * HELD <= 128 ? SPAN : 1;

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
__device__ __forceinline__ void k_out(const Tensors& t, int64_t r, int64_t c, const float (&given)[N]) {
  t.out0[r * OUT_X + c] = given[0];
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

// Whether row i of a group's input rows lies in the window of its output row q.
__host__ __device__ constexpr bool takes(int q, int i) {
  return ADAPTIVE || (i >= q * STRIDE_Y && (i - q * STRIDE_Y) % STEP_Y == 0 && (i - q * STRIDE_Y) / STEP_Y < WINDOW_Y);
}

__device__ __forceinline__ bool wanted(int i) {
  bool any = false;
#pragma unroll
  for (int q = 0; q < DOWN; ++q) any |= takes(q, i);
  return any;
}

__global__ void __launch_bounds__(ACROSS* TEAMS) pool(const Tensors t) {
  __shared__ float line[TEAMS][DOWN][LINE];
  constexpr float EMPTY = MAXIMUM ? -INFINITY : 0.0f;
  const int lane = threadIdx.x % ACROSS, team = threadIdx.x / ACROSS;
  const int64_t asked = int64_t(blockIdx.x) * TEAMS + team;
  const bool real = asked < ITEMS;  // the last block may hold items past the last: they work on it again
  const int64_t item = real ? asked : ITEMS - 1;
  const int o = static_cast<int>(item % TILES) * (ACROSS * ALONG);
  const int64_t rest = item / TILES;
  const int oy = static_cast<int>(rest % GROUPS) * DOWN, oz = static_cast<int>(rest / GROUPS % OUT_Z);
  const int64_t plane = rest / (GROUPS * OUT_Z);
  const int x0 = first<IN_X, OUT_X, STRIDE_X, PAD_X>(o), y0 = first<IN_Y, OUT_Y, STRIDE_Y, PAD_Y>(oy);
  const int rows = ADAPTIVE ? count<IN_Y, OUT_Y, WINDOW_Y>(oy) : SPAN;

  float held[DOWN][HELD];
#pragma unroll
  for (int q = 0; q < DOWN; ++q) {
#pragma unroll
    for (int m = 0; m < HELD; ++m) held[q][m] = EMPTY;
  }
  for (int k = 0; k < count<IN_Z, OUT_Z, WINDOW_Z>(oz); ++k) {
    const int z = first<IN_Z, OUT_Z, STRIDE_Z, PAD_Z>(oz) + k * STEP_Z;
    if (z < 0 || z >= IN_Z) continue;
#pragma unroll UNROLLED
    for (int i = 0; i < SPAN; ++i) {
      const int y = y0 + i;
      if (!wanted(i) || i >= rows || y < 0 || y >= IN_Y) continue;
      const int64_t r = (plane * IN_Z + z) * IN_Y + y;
#pragma unroll
      for (int m = 0; m < HELD; ++m) {
        const int place = m * ACROSS + lane, x = x0 + place;
        if (place < LINE && x >= 0 && x < IN_X) {
          float one[1];
          k_in<1>(t, r, x, one);
#pragma unroll
          for (int q = 0; q < DOWN; ++q) {
            if (takes(q, i)) held[q][m] = combine(one[0], held[q][m]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int q = 0; q < DOWN; ++q) {
#pragma unroll
    for (int m = 0; m < HELD; ++m) {
      if (m * ACROSS + lane < LINE) line[team][q][m * ACROSS + lane] = held[q][m];
    }
  }
  __syncthreads();
#pragma unroll
  for (int q = 0; q < DOWN; ++q) {
#pragma unroll
    for (int p = 0; p < ALONG; ++p) {
      const int ox = o + p * ACROSS + lane, row = oy + q;
      if (!real || ox >= OUT_X || row >= OUT_Y) continue;
      const int from = first<IN_X, OUT_X, STRIDE_X, PAD_X>(ox) - x0;
      float whole[1] = {EMPTY};
      for (int k = 0; k < count<IN_X, OUT_X, WINDOW_X>(ox); ++k) whole[0] = combine(line[team][q][from + k * STEP_X], whole[0]);
      if constexpr (!MAXIMUM) {
        const int64_t each = int64_t(counted<IN_Z, OUT_Z, WINDOW_Z, STRIDE_Z, PAD_Z>(oz)) *
                             counted<IN_Y, OUT_Y, WINDOW_Y, STRIDE_Y, PAD_Y>(row) * counted<IN_X, OUT_X, WINDOW_X, STRIDE_X, PAD_X>(ox);
        whole[0] /= static_cast<float>(DIVISOR ? DIVISOR : each);
      }
      k_out<1>(t, (plane * OUT_Z + oz) * OUT_Y + row, ox, whole);
    }
  }
}

void launch(const Tensors& t, DLDevice device) {
  static_assert((ITEMS + TEAMS - 1) / TEAMS < 2147483648, "a grid has at most 2^31 - 1 blocks");
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  pool<<<static_cast<unsigned>((ITEMS + TEAMS - 1) / TEAMS), ACROSS * TEAMS, 0, stream>>>(t);
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
