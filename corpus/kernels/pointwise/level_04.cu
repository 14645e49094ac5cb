/* ---
id: kernels/pointwise/level_04_cuda
title: Rows of odd lengths and strides, stored in whole 16-byte vectors after a head
archs: [sm_80+]
families: [pointwise, layout]
bottlenecks: [dram-bw]
languages: [cuda]
--- */
// One idea: where a row begins at any element, shift the work and not the data. A warp has a row. The first few elements bring its
// output to a 16-byte boundary, then each lane stores whole vectors, and single elements end the row. The input row has another
// alignment: its elements are read one by one, which costs instructions and no bandwidth, as neighbouring lanes read neighbours.
// max.NaN and min.NaN give NaN where either side is NaN, as PyTorch does, in one instruction; fmaxf gives the number.
#include <cstdint>

#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int BLOCK = 256, WARPS = BLOCK / 32;

__device__ __forceinline__ float max_nan(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}

__device__ __forceinline__ float min_nan(float a, float b) {
  float m;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}

__device__ __forceinline__ float clamped(float v, float low, float high) { return min_nan(max_nan(v, low), high); }

__global__ void __launch_bounds__(BLOCK)
clamp_rows(const float* __restrict__ x, int64_t x_stride, float* __restrict__ out, int64_t out_stride, int64_t rows, int cols, float low, float high) {
  const int64_t row = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* from = x + row * x_stride;
  float* to = out + row * out_stride;
  const int off = static_cast<int>(reinterpret_cast<uintptr_t>(to) / 4 % 4), gap = (4 - off) % 4;
  const int head = gap < cols ? gap : cols, vectors = (cols - head) / 4;
  if (lane < head) to[lane] = clamped(from[lane], low, high);
  for (int i = lane; i < vectors; i += 32) {
    const float* v = from + head + 4 * i;
    float4 w = make_float4(v[0], v[1], v[2], v[3]);
    w = make_float4(clamped(w.x, low, high), clamped(w.y, low, high), clamped(w.z, low, high), clamped(w.w, low, high));
    *reinterpret_cast<float4*>(to + head + 4 * i) = w;
  }
  const int end = head + 4 * vectors + lane;
  if (end < cols) to[end] = clamped(from[end], low, high);
}

}  // namespace

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out, double low, double high) {
  const DLDevice at = x.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(at.device_type, at.device_id));
  TVM_FFI_ICHECK(x.ndim() == 2 && x.stride(1) == 1 && out.stride(1) == 1) << "rows lie with their elements together";
  const int64_t rows = x.size(0);
  clamp_rows<<<(rows + WARPS - 1) / WARPS, BLOCK, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), x.stride(0), static_cast<float*>(out.data_ptr()), out.stride(0), rows, x.size(1), low, high);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}
