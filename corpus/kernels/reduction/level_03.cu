/* ---
id: kernels/reduction/level_03_cuda
title: Column sums, a column a thread, neighbouring threads on neighbouring columns
archs: [sm_80+]
families: [reduction, softmax, norm]
bottlenecks: [dram-bw, latency]
languages: [cuda]
--- */
// One idea: read memory in its own order. Where the dimension that is folded is not the last one, neighbouring threads take neighbouring
// results, so each of their loads is a whole line. THREADS threads share a result, each with every THREADS-th element; what they hold is
// folded through shared memory. A fold that is no longer than the registers of its threads is read once.
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
//@end math

//@begin shape
#ifndef THREADS
#define THREADS 8
#endif
#ifndef ROWS_PER_BLOCK
#define ROWS_PER_BLOCK 32
#endif
constexpr int64_t ROWS = 4096, COLUMNS = 4096;
constexpr int VECTOR = 1;
constexpr bool PERSISTENT = false;
//@end shape

constexpr int STEP = THREADS * VECTOR;
constexpr int STEPS = static_cast<int>((COLUMNS + STEP - 1) / STEP);
constexpr bool WHOLE = COLUMNS % STEP == 0;
constexpr int64_t GROUPS = (ROWS + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
static_assert(THREADS * ROWS_PER_BLOCK <= 1024, "a block has at most 1024 threads");

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

// Combines one number of each of the THREADS threads that share a row; all of them get the answer. Two areas of shared memory take turns,
// so that one barrier a reduction is enough.
template <float (*COMBINE)(float, float)>
__device__ __forceinline__ float k_reduce(float x, float (&area)[2][THREADS][ROWS_PER_BLOCK], int& turn) {
  if constexpr (THREADS > 1) {
    const int row = threadIdx.x % ROWS_PER_BLOCK;
    area[turn][threadIdx.x / ROWS_PER_BLOCK][row] = x;
    __syncthreads();
    x = area[turn][0][row];
#pragma unroll
    for (int i = 1; i < THREADS; ++i) x = COMBINE(x, area[turn][i][row]);
    turn ^= 1;
  }
  return x;
}

__global__ void __launch_bounds__(THREADS* ROWS_PER_BLOCK) rows(const Tensors t) {
  __shared__ float area[2][THREADS][ROWS_PER_BLOCK];
  int turn = 0;
  const int lane = threadIdx.x / ROWS_PER_BLOCK;  // of the threads that share a row
  for (int64_t group = blockIdx.x; group < GROUPS; group += gridDim.x) {
    const int64_t asked = group * ROWS_PER_BLOCK + threadIdx.x % ROWS_PER_BLOCK;
    const bool real = ROWS % ROWS_PER_BLOCK == 0 || asked < ROWS;  // the last block may hold rows past the last: they work on it again
    const int64_t r = real ? asked : ROWS - 1;
    //@begin work
    float sum = 0.0f;
#pragma unroll 8
    for (int i = 0; i < STEPS; ++i) {
      const int c = i * STEP + lane;
      if (WHOLE || c < COLUMNS) sum += k_fetch<1, true>(t.in0 + (int64_t(c) * ROWS + r)).at[0];
    }
    sum = k_reduce<k_sum>(sum, area, turn);
    if (real && lane == 0) t.out0[r] = sum;
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
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t, out.device());
}
//@end run
