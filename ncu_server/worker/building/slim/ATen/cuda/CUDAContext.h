// Without the libraries' handles: streams, checks, properties of the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)

namespace at::cuda {
using namespace c10::cuda;
TORCH_CUDA_CPP_API cudaDeviceProp* getCurrentDeviceProperties();
TORCH_CUDA_CPP_API int warp_size();
}  // namespace at::cuda
