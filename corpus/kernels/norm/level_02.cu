/* ---
id: kernels/norm/level_02_cuda
title: RMS norm of a residual sum with the row in registers, one read and one write
archs: [sm_80+]
families: [norm]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: a row is read once. Each thread takes 16-byte vectors of its row, all of them in flight before the first is used, and holds
// what it has computed in registers while the row's threads agree on the sum: by shuffles within a warp, through shared memory between
// warps. Indices into the registers are compile-time constants, as a run-time index would move them to local memory. Short rows share a
// block: THREADS threads work on one row and ROWS_PER_BLOCK rows on one block.
#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

//@begin math
__device__ __forceinline__ float k_sum(float x, float y) { return x + y; }
__device__ __forceinline__ float k_rsqrt(float x) { return rsqrtf(x); }
//@end math

//@begin shape
#ifndef THREADS
#define THREADS 256
#endif
#ifndef ROWS_PER_BLOCK
#define ROWS_PER_BLOCK 1
#endif
constexpr int64_t ROWS = 4096, COLUMNS = 4096;
constexpr int VECTOR = 4;
constexpr bool PERSISTENT = false;
//@end shape

constexpr int STEP = THREADS * VECTOR;
constexpr int STEPS = static_cast<int>((COLUMNS + STEP - 1) / STEP);
constexpr bool WHOLE = COLUMNS % STEP == 0;
constexpr int64_t GROUPS = (ROWS + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
constexpr int WARPS = THREADS > 32 ? THREADS / 32 : 1;
constexpr int LANES = THREADS > 32 ? 32 : THREADS;
static_assert((THREADS & (THREADS - 1)) == 0 && THREADS * ROWS_PER_BLOCK <= 1024, "threads of a row are a power of two");

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // residual
  const float* in2;  // weight
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

// Combines one number of each thread of a row; all of them get the answer. Two areas of shared memory take turns, so that one barrier
// a reduction is enough.
template <float (*COMBINE)(float, float)>
__device__ __forceinline__ float k_reduce(float x, float (&area)[2][ROWS_PER_BLOCK][WARPS], int& turn) {
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2) x = COMBINE(x, __shfl_xor_sync(~0u, x, d));
  if constexpr (WARPS > 1) {
    const int row = threadIdx.x / THREADS, lane = threadIdx.x % 32, warp = threadIdx.x % THREADS / 32;
    if (lane == 0) area[turn][row][warp] = x;
    __syncthreads();
    x = area[turn][row][lane % WARPS];
    turn ^= 1;
#pragma unroll
    for (int d = WARPS / 2; d > 0; d /= 2) x = COMBINE(x, __shfl_xor_sync(~0u, x, d));
  }
  return x;
}

__global__ void __launch_bounds__(THREADS* ROWS_PER_BLOCK) rows(const Tensors t) {
  __shared__ float area[2][ROWS_PER_BLOCK][WARPS];
  int turn = 0;
  const int lane = threadIdx.x % THREADS;
  for (int64_t group = blockIdx.x; group < GROUPS; group += gridDim.x) {
    const int64_t asked = group * ROWS_PER_BLOCK + threadIdx.x / THREADS;
    const bool real = ROWS % ROWS_PER_BLOCK == 0 || asked < ROWS;  // a warp may hold rows past the last: they work on it again
    const int64_t r = real ? asked : ROWS - 1;
    //@begin work
    k_vector<float, VECTOR> x[STEPS], y[STEPS];
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      const int c = i * STEP + lane * VECTOR;
      if (WHOLE || c < COLUMNS) {
        x[i] = k_fetch<VECTOR, true>(t.in0 + (r * COLUMNS + c));
        y[i] = k_fetch<VECTOR, true>(t.in1 + (r * COLUMNS + c));
      }
    }
    float h[STEPS * VECTOR], squares = 0.0f;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      const int c = i * STEP + lane * VECTOR;
      if (WHOLE || c < COLUMNS) {
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
          const float v = x[i].at[j] + y[i].at[j];
          h[i * VECTOR + j] = v;
          squares += v * v;
        }
      }
    }
    squares = k_reduce<k_sum>(squares, area, turn);
    const float scale = k_rsqrt(squares / COLUMNS + 1e-6f);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      const int c = i * STEP + lane * VECTOR;
      if (WHOLE || c < COLUMNS) {
        const k_vector<float, VECTOR> w = k_fetch<VECTOR, false>(t.in2 + c);
        k_vector<float, VECTOR> o;
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) o.at[j] = h[i * VECTOR + j] * scale * w.at[j];
        if (real) k_put<true>(t.out0 + (r * COLUMNS + c), o);
      }
    }
    //@end work
  }
}

void launch(const Tensors& t, DLDevice device) {
  cudaSetDevice(device.device_id);
  int64_t blocks = GROUPS < 2147483647 ? GROUPS : 2147483647;
  if (PERSISTENT) {
    static const int64_t resident = [&] {
      int each = 1, processors = 1;
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, rows, THREADS * ROWS_PER_BLOCK, 0);
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.device_id);
      return static_cast<int64_t>(each) * processors;
    }();
    blocks = resident < blocks ? resident : blocks;
  }
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  rows<<<static_cast<unsigned>(blocks), THREADS * ROWS_PER_BLOCK, 0, stream>>>(t);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView residual, tvm::ffi::TensorView weight, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(residual.data_ptr());
  t.in2 = static_cast<const float*>(weight.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
