/* ---
id: kernels/norm/level_01
title: Layer norm in three plain loops a row
archs: [cpu]
families: [norm]
bottlenecks: [latency]
languages: [cpp]
--- */
// The starting point: mean, variance, result. The second loop subtracts the mean before squaring, because the difference of two large
// sums would lose what the variance of a row far from zero consists of.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tvm/ffi/container/tensor.h>

void run(tvm::ffi::TensorView x_, tvm::ffi::TensorView weight_, tvm::ffi::TensorView bias_, tvm::ffi::TensorView out_) {
  const float* x = static_cast<const float*>(x_.data_ptr());
  const float* weight = static_cast<const float*>(weight_.data_ptr());
  const float* bias = static_cast<const float*>(bias_.data_ptr());
  float* out = static_cast<float*>(out_.data_ptr());
  const int64_t rows = x_.size(0), columns = x_.size(1);
  #pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * columns;
    float mean = 0.0f, variance = 0.0f;
    for (int64_t c = 0; c < columns; ++c) mean += row[c] / columns;
    for (int64_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / columns;
    const float scale = 1.0f / std::sqrt(variance + 1e-5f);
    for (int64_t c = 0; c < columns; ++c) out[r * columns + c] = (row[c] - mean) * scale * weight[c] + bias[c];
  }
}
