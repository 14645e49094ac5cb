/* ---
id: kernels/math/level_01_cuda
title: Elementary functions on the device that keep NaN and the last bits
archs: [sm_80+]
families: [pointwise, softmax, norm]
bottlenecks: [compute]
languages: [cuda]
--- */
// One idea: take the accurate library functions, because a kernel that waits for memory has time for them. __expf and its kin save
// instructions at the price of bits; fmaxf and fminf return the number where one side is NaN, while PyTorch returns NaN.
#include <cmath>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#pragma nv_diag_suppress 177  // the kernel below calls only two of them

namespace {

//@begin k_exp
__device__ __forceinline__ float k_exp(float x) { return expf(x); }
//@end k_exp
//@begin k_expm1
__device__ __forceinline__ float k_expm1(float x) { return expm1f(x); }
//@end k_expm1
//@begin k_log
__device__ __forceinline__ float k_log(float x) { return logf(x); }
//@end k_log
//@begin k_log1p
__device__ __forceinline__ float k_log1p(float x) { return log1pf(x); }
//@end k_log1p
//@begin k_tanh
__device__ __forceinline__ float k_tanh(float x) { return tanhf(x); }
//@end k_tanh
//@begin k_sigmoid
__device__ __forceinline__ float k_sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
//@end k_sigmoid
//@begin k_erf
__device__ __forceinline__ float k_erf(float x) { return erff(x); }
//@end k_erf
//@begin k_rsqrt
__device__ __forceinline__ float k_rsqrt(float x) { return rsqrtf(x); }
//@end k_rsqrt
//@begin k_max
__device__ __forceinline__ float k_max(float x, float y) { return x > y || x != x ? x : y; }
//@end k_max
//@begin k_min
__device__ __forceinline__ float k_min(float x, float y) { return x < y || x != x ? x : y; }
//@end k_min
//@begin k_sum
__device__ __forceinline__ float k_sum(float x, float y) { return x + y; }
//@end k_sum
//@begin k_sign
__device__ __forceinline__ float k_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? x : 0.0f; }
//@end k_sign
//@begin k_remainder
__device__ __forceinline__ float k_remainder(float x, float y) {
  const float m = fmodf(x, y);
  return m != 0.0f && (m < 0.0f) != (y < 0.0f) ? m + y : m;
}
//@end k_remainder

//@begin k_float32
using k_float32 = float;
__device__ __forceinline__ float k_load(k_float32 x) { return x; }
__device__ __forceinline__ void k_store(k_float32& to, float x) { to = x; }
//@end k_float32
//@begin k_float16
using k_float16 = __half;
__device__ __forceinline__ float k_load(k_float16 x) { return __half2float(x); }
__device__ __forceinline__ void k_store(k_float16& to, float x) { to = __float2half_rn(x); }
//@end k_float16
//@begin k_bfloat16
using k_bfloat16 = __nv_bfloat16;
__device__ __forceinline__ float k_load(k_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void k_store(k_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
//@end k_bfloat16
//@begin k_round_float16
__device__ __forceinline__ float k_round_float16(float x) { return __half2float(__float2half_rn(x)); }
//@end k_round_float16
//@begin k_round_bfloat16
__device__ __forceinline__ float k_round_bfloat16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }
//@end k_round_bfloat16
//@begin k_bool
using k_bool = uint8_t;
__device__ __forceinline__ float k_load(k_bool x) { return static_cast<float>(x); }
__device__ __forceinline__ void k_store(k_bool& to, float x) { to = x != 0.0f; }
//@end k_bool
//@begin k_int64
using k_int64 = int64_t;
__device__ __forceinline__ float k_load(k_int64 x) { return static_cast<float>(x); }
//@end k_int64

__global__ void softplus(const float* in, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = k_log1p(k_exp(in[i]));
}

}  // namespace

void run(tvm::ffi::TensorView in, tvm::ffi::TensorView out) {
  const DLDevice device = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const int64_t n = out.numel();
  softplus<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(
      static_cast<const float*>(in.data_ptr()), static_cast<float*>(out.data_ptr()), n);
  if (const cudaError_t fault = cudaGetLastError(); fault != cudaSuccess) {
    TVM_FFI_THROW(RuntimeError) << "the kernel was not launched: " << cudaGetErrorString(fault);
  }
}
