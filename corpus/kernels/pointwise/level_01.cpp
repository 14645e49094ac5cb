/* ---
id: kernels/pointwise/level_01
title: A gated pointwise chain in one plain loop
archs: [cpu]
families: [pointwise]
bottlenecks: [compute]
languages: [cpp]
--- */
// The starting point: one loop instead of a pass an operation. std::erf and std::exp are calls, so the loop runs an element at a time.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tvm/ffi/container/tensor.h>

void run(tvm::ffi::TensorView x_, tvm::ffi::TensorView gate_, tvm::ffi::TensorView scale_, tvm::ffi::TensorView out_) {
  const float* x = static_cast<const float*>(x_.data_ptr());
  const float* gate = static_cast<const float*>(gate_.data_ptr());
  const float* scale = static_cast<const float*>(scale_.data_ptr());
  float* out = static_cast<float*>(out_.data_ptr());
  const int64_t n = out_.numel(), columns = out_.size(1);
  #pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i] * scale[i % columns];
    out[i] = 0.5f * v * (1.0f + std::erf(v * 0.707106781f)) / (1.0f + std::exp(-gate[i]));
  }
}
