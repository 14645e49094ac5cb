/* ---
id: kernels/recurrent/level_01_cuda
title: A whole LSTM or GRU in one cooperative launch, weights in registers, layers as a wave, states that say by themselves that they are there
archs: [sm_80+]
families: [recurrent, gemm]
bottlenecks: [latency]
languages: [cuda]
dtypes: [float32]
--- */
// One idea: weights never move. A block has some units of one layer and direction, and all their rows of both matrices in registers, for
// all steps. What moves is the state, a few kilobytes a step, from each block of a layer to all of it and to those of the layer above.
// The history of states is filled with a pattern that no block writes; who reads looks at the word itself until it is another one. So there
// is no flag, no fence and no barrier of the grid between blocks: a step waits for one trip through L2. A layer waits for itself a step
// ago, and for the layer below; nobody waits for a layer above, nor for room, as the history keeps every step. All blocks are resident
// (a cooperative launch), so the lowest layer that is not done can always go on.
// The product with the input goes on while the state is on its way, and two warps bring what the next product reads. Layers go as a wave
// where all fit; those of two directions follow each other, as each reads both directions of the one below from end to end.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

//@begin math
__device__ __forceinline__ float k_tanh(float x) { return tanhf(x); }
__device__ __forceinline__ float k_sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
//@end math

//@begin shape
constexpr bool LSTM = true;  // else a GRU
constexpr int BATCH = 10, STEPS = 512, INPUT = 128, HIDDEN = 256, LAYERS = 6, DIRECTIONS = 1;
constexpr bool BATCH_FIRST = true;
constexpr int UNITS = 12, WAVE = 6;          // units of a block, layers that are computed at once
constexpr int LANE_ROWS = 16, ROWS = 3;      // rows of the weights that lanes of a warp share out, how many each has
constexpr int TOGETHER = 5;                  // rows of the batch that are summed at once
//@end shape

constexpr int over(int n, int by) { return (n + by - 1) / by; }

constexpr int GATES = LSTM ? 4 : 3, WARPS = 8, LOADERS = 4, COMPUTE = WARPS * 32, THREADS = COMPUTE + LOADERS * 32;
constexpr int WIDTH = over(HIDDEN, 4) * 4, GROUPS = over(WIDTH, UNITS), BLOCKS = WAVE * DIRECTIONS * GROUPS;
constexpr int BELOW = LAYERS > 1 ? DIRECTIONS * WIDTH : 0, GIVEN = over(INPUT, 4) * 4 > BELOW ? over(INPUT, 4) * 4 : BELOW;
constexpr int SLICES = WARPS * 32 / LANE_ROWS;  // of the columns: neighbouring slices have neighbouring chunks of four
constexpr int X_CHUNKS = over(GIVEN / 4, SLICES), H_CHUNKS = over(WIDTH / 4, SLICES);
constexpr int X_PITCH = X_CHUNKS * SLICES * 4, H_PITCH = H_CHUNKS * SLICES * 4;
constexpr int BATCHES = over(BATCH, TOGETHER) * TOGETHER, ALL_ROWS = LANE_ROWS * ROWS;
constexpr int SLICE = BATCHES * ALL_ROWS + (LANE_ROWS - BATCHES * ALL_ROWS % 32 + 32) % 32;  // sums, so that banks differ
constexpr int PAIRS = UNITS * BATCH, HELD = over(PAIRS, COMPUTE / 4);  // states of a block, and of four lanes
constexpr uint32_t SHARED = (BATCHES * (X_PITCH + H_PITCH) + 2 * SLICES * SLICE + 2 * ALL_ROWS) * sizeof(float);
constexpr uint32_t ABSENT = 0xFFFFFFFF;  // a NaN that no arithmetic gives
constexpr int64_t STATE = int64_t(BATCH) * WIDTH, HISTORY = LAYERS * DIRECTIONS * STEPS * STATE;
static_assert(GATES * UNITS <= ALL_ROWS && (DIRECTIONS == 1 || WAVE == 1));

struct Tensors {
  const float *x, *h0, *c0;                      // no initial states are zeros
  const float* weights[LAYERS * DIRECTIONS][4];  // for the input and the state, and their biases, if there are
  float *output, *hidden, *cell;                 // those that somebody reads
};

namespace ptx {

// Four words that other blocks may be writing, each of which is old or new: from where all blocks see them, not from this SM's L1.
__device__ __forceinline__ uint4 look(const uint4* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ void show(uint32_t* p, uint32_t v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }

// A look takes half a microsecond or more: after ten seconds something is broken, and an error is better than a device that hangs.
__device__ __forceinline__ void pause(uint32_t looks) {
  if (looks >> 24) asm volatile("trap;");
}

// All warps of the block: those that bring and those that compute come from different places.
__device__ __forceinline__ void meet() {
  __syncwarp();
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

}  // namespace ptx

__device__ __forceinline__ bool there(const uint4& v) { return v.x != ABSENT && v.y != ABSENT && v.z != ABSENT && v.w != ABSENT; }

// The states of all batches after a step.
__device__ __forceinline__ uint32_t* state_of(uint32_t* history, int layer, int direction, int t) {
  return history + (int64_t(layer * DIRECTIONS + direction) * STEPS + t) * STATE;
}

// States into rows of shared memory, each word as soon as it is there.
template <int PITCH>
__device__ __forceinline__ void bring(const uint32_t* state, float* to) {
  constexpr int COUNT = BATCH * (WIDTH / 4), ASKED = 5;  // looks of a thread that are under way at once
  const uint4* from = reinterpret_cast<const uint4*>(state);
#pragma unroll 1
  for (int first = threadIdx.x - COMPUTE; first < COUNT; first += ASKED * LOADERS * 32) {
    uint4 v[ASKED];
#pragma unroll
    for (int i = 0; i < ASKED; ++i) {
      const int at = first + i * LOADERS * 32;
      if (at < COUNT) v[i] = ptx::look(from + at);
    }
#pragma unroll
    for (int i = 0; i < ASKED; ++i) {
      const int at = first + i * LOADERS * 32;
      if (at >= COUNT) break;
      for (uint32_t looks = 0; !there(v[i]); v[i] = ptx::look(from + at)) ptx::pause(++looks);
      *reinterpret_cast<uint4*>(to + at / (WIDTH / 4) * PITCH + at % (WIDTH / 4) * 4) = v[i];
    }
  }
}

// What a layer reads at a step: the module's input, or the states of the layer below, of both directions.
__device__ __forceinline__ void bring_input(const Tensors& t, uint32_t* history, int layer, int step, float* to) {
  if (layer == 0) {
    constexpr int VECTOR = INPUT % 4 == 0 ? 4 : 1, COLUMNS = INPUT / VECTOR;
    using Some = std::conditional_t<VECTOR == 4, float4, float>;
    const float* from = t.x + int64_t(step) * (BATCH_FIRST ? INPUT : BATCH * INPUT);
#pragma unroll 4
    for (int n = threadIdx.x - COMPUTE; n < BATCH * COLUMNS; n += LOADERS * 32) {
      const int b = n / COLUMNS, k = n % COLUMNS * VECTOR;
      const int64_t place = b * (BATCH_FIRST ? int64_t(STEPS) * INPUT : INPUT) + k;
      *reinterpret_cast<Some*>(to + b * X_PITCH + k) = __ldg(reinterpret_cast<const Some*>(from + place));
    }
    return;
  }
#pragma unroll 1
  for (int d = 0; d < DIRECTIONS; ++d) bring<X_PITCH>(state_of(history, layer - 1, d, step), to + d * WIDTH);
}

__device__ __forceinline__ void bring_initial(const Tensors& t, int at, float* to) {
  for (int n = threadIdx.x - COMPUTE; n < BATCH * HIDDEN; n += LOADERS * 32)
    to[n / HIDDEN * H_PITCH + n % HIDDEN] = t.h0 ? __ldg(t.h0 + int64_t(at) * BATCH * HIDDEN + n) : 0.0f;
}

// A thread's weights: of each of its rows every chunk of its slice. REAL columns of WIDE each have weights, one after the other.
template <int REAL, int WIDE, int COLUMNS, int CHUNKS>
__device__ __forceinline__ void load(float (&w)[ROWS][CHUNKS], const float* weights, int first) {
  const int slice = threadIdx.x / LANE_ROWS, lane = threadIdx.x % LANE_ROWS;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int row = r * LANE_ROWS + lane, unit = first + row / GATES;
    const float* from = weights + (int64_t(row % GATES) * HIDDEN + unit) * COLUMNS;
    const bool is_row = row < GATES * UNITS && unit < HIDDEN;
#pragma unroll
    for (int i = 0; i < CHUNKS; i += 4) {
      const int c = (i / 4 * SLICES + slice) * 4, k = c % WIDE, place = c / WIDE * REAL + k;
      if constexpr (REAL % 4 == 0) {
        const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
        const float4 v = is_row && k < REAL && place < COLUMNS ? __ldg(reinterpret_cast<const float4*>(from + place)) : zero;
        w[r][i] = v.x, w[r][i + 1] = v.y, w[r][i + 2] = v.z, w[r][i + 3] = v.w;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) w[r][i + j] = is_row && k + j < REAL && place + j < COLUMNS ? __ldg(from + place + j) : 0.0f;
      }
    }
  }
}

// A thread's part of its rows' products with each row of the batch.
template <int CHUNKS, int PITCH>
__device__ __forceinline__ void multiply(const float (&w)[ROWS][CHUNKS * 4], const float* rows, float* sums) {
  const int slice = threadIdx.x / LANE_ROWS, lane = threadIdx.x % LANE_ROWS;
  rows += slice * 4, sums += slice * SLICE + lane;
#pragma unroll 1
  for (int b = 0; b < BATCHES; b += TOGETHER) {
    float sum[ROWS][TOGETHER] = {};
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
      for (int j = 0; j < TOGETHER; ++j) {
        const float4 v = *reinterpret_cast<const float4*>(rows + (b + j) * PITCH + chunk * SLICES * 4);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          sum[r][j] = fmaf(w[r][chunk * 4], v.x, sum[r][j]);
          sum[r][j] = fmaf(w[r][chunk * 4 + 1], v.y, sum[r][j]);
          sum[r][j] = fmaf(w[r][chunk * 4 + 2], v.z, sum[r][j]);
          sum[r][j] = fmaf(w[r][chunk * 4 + 3], v.w, sum[r][j]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < TOGETHER; ++j) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sums[(b + j) * ALL_ROWS + r * LANE_ROWS] = sum[r][j];
    }
  }
}

// Four lanes have a unit of a row of the batch, and each of them a gate.
struct Pair {
  int unit, row, gate;
  bool real;
  __device__ __forceinline__ explicit Pair(int i) {
    const int at = i * (COMPUTE / 4) + threadIdx.x / 4;
    real = at < PAIRS, unit = at % UNITS, row = real ? at / UNITS : 0, gate = threadIdx.x % 4 < GATES ? threadIdx.x % 4 : 0;
  }
};

// The sum of all slices, and the bias.
__device__ __forceinline__ float whole(const Pair& p, const float* sums, const float* bias) {
  const int at = p.unit * GATES + p.gate;
  float sum = bias[at];
#pragma unroll 8
  for (int s = 0; s < SLICES; ++s) sum += sums[s * SLICE + p.row * ALL_ROWS + at];
  return sum;
}

// The next hidden state, in all four lanes, of what the gates have of the input and of the state. `kept` is the LSTM's cell, or the hidden
// state of a GRU.
__device__ __forceinline__ float next(int gate, float x, float h, float& kept) {
  const int lane = threadIdx.x % 32, first = lane - lane % 4;
  if constexpr (LSTM) {
    const float mine = gate == 2 ? k_tanh(x + h) : k_sigmoid(x + h);
    const float in = __shfl_sync(~0u, mine, first), forget = __shfl_sync(~0u, mine, first + 1);
    const float cell = __shfl_sync(~0u, mine, first + 2), out = __shfl_sync(~0u, mine, first + 3);
    kept = forget * kept + in * cell;
    return out * k_tanh(kept);
  } else {
    const float opened = k_sigmoid(x + h);  // of the first two gates
    const float reset = __shfl_sync(~0u, opened, first), update = __shfl_sync(~0u, opened, first + 1);
    const float fresh = __shfl_sync(~0u, k_tanh(x + reset * h), first + 2);
    return kept = (kept - fresh) * update + fresh;
  }
}

// One new state: to the other blocks first, then into the results.
__device__ __forceinline__ void store(const Tensors& t, uint32_t* state, int layer, int direction, int step, bool last, const Pair& p,
                                      int unit, float h, float kept) {
  if (threadIdx.x % 4 != 0 || !p.real || unit >= WIDTH) return;
  const uint32_t word = unit < HIDDEN ? __float_as_uint(h) : 0;
  ptx::show(state + p.row * WIDTH + unit, word == ABSENT ? 0x7FFFFFFF : word);
  if (unit >= HIDDEN) return;
  if (t.output && layer == LAYERS - 1) {
    const int64_t row = BATCH_FIRST ? int64_t(p.row) * STEPS + step : int64_t(step) * BATCH + p.row;
    t.output[(row * DIRECTIONS + direction) * HIDDEN + unit] = h;
  }
  const int64_t at = (int64_t(layer * DIRECTIONS + direction) * BATCH + p.row) * HIDDEN + unit;
  if (t.hidden && last) t.hidden[at] = h;
  if (t.cell && last) t.cell[at] = kept;
}

// What shared memory holds. Calls that are not inlined find it by its name, so that the compiler knows what memory it is.
struct Shared {
  float *xs, *hs, *x_sums, *h_sums, *x_bias, *h_bias;
  __device__ __forceinline__ explicit Shared(float* first) : xs{first} {
    hs = xs + BATCHES * X_PITCH, x_sums = hs + BATCHES * H_PITCH, h_sums = x_sums + SLICES * SLICE;
    x_bias = h_sums + SLICES * SLICE, h_bias = x_bias + ALL_ROWS;
  }
};

// The warps that bring: the state of a step ago while the input is multiplied, and the next input while that state is.
__device__ __noinline__ void bring_layer(const Tensors& t, uint32_t* history, int layer, int direction) {
  extern __shared__ float shared[];
  const Shared s(shared);
  const int by = direction ? -1 : 1;
  int step = direction ? STEPS - 1 : 0;
  bring_input(t, history, layer, step, s.xs);
  ptx::meet();
  bring_initial(t, layer * DIRECTIONS + direction, s.hs);
#pragma unroll 1
  for (int n = 1; n < STEPS; ++n, step += by) {
    ptx::meet();  // the input is done with
    bring_input(t, history, layer, step + by, s.xs);
    ptx::meet();  // the state is done with
    bring<H_PITCH>(state_of(history, layer, direction, step), s.hs);
  }
  ptx::meet();
  ptx::meet();
}

// The warps that compute.
__device__ __noinline__ void compute_layer(const Tensors& t, uint32_t* history, int layer, int direction, int first) {
  extern __shared__ float shared[];
  const Shared s(shared);
  const int at = layer * DIRECTIONS + direction;
  float w_x[ROWS][X_CHUNKS * 4], w_h[ROWS][H_CHUNKS * 4], kept[HELD], given[HELD];
  if (layer == 0) load<INPUT, X_PITCH, INPUT>(w_x, t.weights[at][0], first);
  else load<HIDDEN, WIDTH, DIRECTIONS * HIDDEN>(w_x, t.weights[at][0], first);
  load<HIDDEN, H_PITCH, HIDDEN>(w_h, t.weights[at][1], first);
  const float* initial = LSTM ? t.c0 : t.h0;
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    const Pair p(i);
    const int unit = first + p.unit;
    kept[i] = initial && p.real && unit < HIDDEN ? __ldg(initial + (int64_t(at) * BATCH + p.row) * HIDDEN + unit) : 0.0f;
  }
  ptx::meet();
#pragma unroll 1
  for (int n = 0; n < STEPS; ++n) {
    multiply<X_CHUNKS, X_PITCH>(w_x, s.xs, s.x_sums);
    ptx::meet();  // the state is there
    multiply<H_CHUNKS, H_PITCH>(w_h, s.hs, s.h_sums);
#pragma unroll
    for (int i = 0; i < HELD; ++i) given[i] = whole(Pair(i), s.x_sums, s.x_bias);
    ptx::meet();  // all sums are there, and the next input
    const int step = direction ? STEPS - 1 - n : n;
    uint32_t* state = state_of(history, layer, direction, step);
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
      const Pair p(i);
      const float h = next(p.gate, given[i], whole(p, s.h_sums, s.h_bias), kept[i]);
      store(t, state, layer, direction, step, n == STEPS - 1, p, first + p.unit, h, kept[i]);
    }
  }
}

__global__ void __launch_bounds__(THREADS, 1) recur(const __grid_constant__ Tensors t, uint32_t* history) {
  extern __shared__ float shared[];
  const Shared s(shared);
  const int direction = blockIdx.x / GROUPS % DIRECTIONS, first = blockIdx.x % GROUPS * UNITS;
#pragma unroll 1
  for (int layer = blockIdx.x / (GROUPS * DIRECTIONS); layer < LAYERS; layer += WAVE) {
    const float* const* weights = t.weights[layer * DIRECTIONS + direction];
    __syncthreads();  // the layer before is done with shared memory
#pragma unroll 1
    for (int n = threadIdx.x; n < BATCHES * (X_PITCH + H_PITCH); n += THREADS) s.xs[n] = 0.0f;
#pragma unroll 1
    for (int n = threadIdx.x; n < 2 * ALL_ROWS; n += THREADS) {
      const int row = n % ALL_ROWS, unit = first + row / GATES;
      const float* bias = weights[2 + n / ALL_ROWS];
      s.x_bias[n] = bias && row < GATES * UNITS && unit < HIDDEN ? __ldg(bias + row % GATES * HIDDEN + unit) : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x < COMPUTE) compute_layer(t, history, layer, direction, first);
    else bring_layer(t, history, layer, direction);
  }
}

// The history is as good as empty before each launch, in the order of the stream, so calls and replays of a graph know nothing of each other.
void launch(const Tensors& tensors, float* scratch, DLDevice device) {
  cudaSetDevice(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  Tensors t = tensors;
  uint32_t* history = reinterpret_cast<uint32_t*>(scratch);
  cudaFuncSetAttribute(recur, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  cudaMemsetAsync(history, 0xFF, HISTORY * sizeof(float), stream);
  void* arguments[] = {&t, &history};
  // A cooperative launch is refused where not all blocks fit, in place of a wait without an end.
  const cudaError_t error = cudaLaunchCooperativeKernel(reinterpret_cast<void*>(recur), BLOCKS, THREADS, arguments, SHARED, stream);
  cudaGetLastError();  // told here, and not again by the next call of somebody else
  TVM_FFI_ICHECK(error == cudaSuccess) << cudaGetErrorString(error);
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView in0, tvm::ffi::TensorView out0, tvm::ffi::TensorView scratch) {
  Tensors t{};  // of the weights none here: the template names every tensor
  t.x = static_cast<const float*>(in0.data_ptr());
  t.output = static_cast<float*>(out0.data_ptr());
  launch(t, static_cast<float*>(scratch.data_ptr()), out0.device());
}
//@end run
