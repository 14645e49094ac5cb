/* ---
id: kernels/convolution/level_01_cuda
title: A depthwise 3 x 3 convolution that streams planes through bulk copies, with aligned stores from shifted columns
archs: [sm_90]
families: [conv]
bottlenecks: [dram-bw]
languages: [cuda]
dtypes: [float32]
--- */
// One idea: each byte moves once, 16 at a time. A block walks down a plane: bulk copies bring stages of rows to a ring,
// a thread keeps eight columns of three rows. An output row is two columns short of whole float4s, so each second one
// starts amid 16 bytes: there a thread makes the four results two columns further right, and its store is aligned
// again.
// out = conv2d(x, w, bias, groups=channels), float32, NCHW, stride 1, no padding: any height, whole float4s up to
// WIDEST.
// Its origin ran 64 x 128 x 256 x 512 (KernelBench 1/84) in 2,212 us on an H200; eager PyTorch took 10,055 us,
// torch.compile 7,548.
#include <cstdint>

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int STAGE_ROWS = 8, STAGES = 3, WIDEST = 2048;
static_assert(STAGE_ROWS % 2 == 0);  // a row is odd where its place in the stage is

__device__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void load(float4* to, const float4* from, uint32_t bytes, uint64_t* bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2;\n"
               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(smem(to)), "l"(from), "r"(bytes), "r"(smem(bar)) : "memory");
}

__device__ void wait(uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}

struct Row { float column[8]; };  // columns 4t to 4t + 7; the last thread has 0 to 3 behind its own four

// Four columns of an output row, from 4t + shift on. The last thread has two: the last ones, or if shifted 0 and 1.
__device__ __forceinline__ void emit(const Row& above, const Row& middle, const Row& below, const float (&w)[9],
                                     float bias, float* to, int shift, bool last) {
  const int t = threadIdx.x;
  float sum[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    sum[j] = bias;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      sum[j] = fmaf(w[i], above.column[shift + j + i], sum[j]);
      sum[j] = fmaf(w[3 + i], middle.column[shift + j + i], sum[j]);
      sum[j] = fmaf(w[6 + i], below.column[shift + j + i], sum[j]);
    }
  }
  if (last) reinterpret_cast<float2*>(to)[shift ? 0 : 2 * t] = make_float2(sum[shift], sum[shift + 1]);
  else reinterpret_cast<float4*>(to + shift)[t] = make_float4(sum[0], sum[1], sum[2], sum[3]);
}

// ODD: whether the plane's first output row starts amid 16 bytes.
template <int ODD>
__device__ void walk(const float4* plane, const float (&w)[9], float bias, float* to, float4* ring, uint64_t* full,
                     int height) {
  const int t = threadIdx.x, quads = blockDim.x, steps = (height + STAGE_ROWS - 1) / STAGE_ROWS;
  const bool last = t == quads - 1;
  const int next = last ? 0 : t + 1;
  const auto fetch = [&](int step) {
    const int from = step * STAGE_ROWS, rows = min(STAGE_ROWS, height - from), slot = step % STAGES;
    load(ring + slot * STAGE_ROWS * quads, plane + int64_t(from) * quads, rows * quads * 16, &full[slot]);
  };
  for (int step = 0; t == 0 && step < min(STAGES, steps); ++step) fetch(step);
  Row above{}, middle{};
  for (int step = 0; step < steps; ++step) {
    const float4* rows = ring + step % STAGES * STAGE_ROWS * quads;
    wait(&full[step % STAGES], step / STAGES & 1);
#pragma unroll
    for (int r = 0; r < STAGE_ROWS; ++r) {
      const int y = step * STAGE_ROWS + r;  // an input row, the last one of output row y - 2
      if (y >= height) break;
      const float4 own = rows[r * quads + t], right = rows[r * quads + next];
      const Row below = {{own.x, own.y, own.z, own.w, right.x, right.y, right.z, right.w}};
      float* row = to + int64_t(y - 2) * (4 * quads - 2);
      if (y >= 2) emit(above, middle, below, w, bias, row, (r + ODD) % 2 * 2, last);
      above = middle, middle = below;
    }
    __syncthreads();  // all have read the stage
    if (t == 0 && step + STAGES < steps) fetch(step + STAGES);
  }
}

__global__ void __launch_bounds__(WIDEST / 4)
depthwise(const float4* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
          float* __restrict__ out, int channels, int height) {
  extern __shared__ __align__(128) float4 ring[];
  __shared__ __align__(8) uint64_t full[STAGES];
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem(&full[s])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int channel = blockIdx.x % channels;
  float w[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) w[i] = weight[channel * 9 + i];
  const int64_t first = int64_t(blockIdx.x) * (height - 2);  // of the plane's rows among all output rows
  const float4* plane = x + int64_t(blockIdx.x) * height * blockDim.x;
  float* to = out + first * (4 * blockDim.x - 2);
  if (first % 2) walk<1>(plane, w, bias[channel], to, ring, full, height);
  else walk<0>(plane, w, bias[channel], to, ring, full, height);
}

}  // namespace

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView bias, tvm::ffi::TensorView out) {
  const auto data = [](tvm::ffi::TensorView t) { return static_cast<float*>(t.data_ptr()); };
  const int64_t planes = x.size(0) * x.size(1), height = x.size(2), width = x.size(3);
  const uint32_t shared = STAGES * STAGE_ROWS * width * 4;
  TVM_FFI_ICHECK(weight.numel() == x.size(1) * 9 && out.numel() == planes * (height - 2) * (width - 2) && height > 2 &&
                 width > 2 && width <= WIDEST && width % 4 == 0 && reinterpret_cast<uintptr_t>(data(x)) % 16 == 0 &&
                 reinterpret_cast<uintptr_t>(data(out)) % 16 == 0)
      << "made for 3 x 3 taps without padding, data on 16 bytes, rows of whole float4s up to " << WIDEST;
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  cudaFuncSetAttribute(depthwise, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  depthwise<<<planes, width / 4, shared, stream>>>(reinterpret_cast<const float4*>(data(x)), data(weight), data(bias),
                                                   data(out), x.size(1), height);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}
