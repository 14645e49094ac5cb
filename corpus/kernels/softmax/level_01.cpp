/* ---
id: kernels/softmax/level_01
title: Softmax in three plain loops a row
archs: [cpu]
families: [softmax]
bottlenecks: [compute, latency]
languages: [cpp]
--- */
// The starting point: maximum, sum of exponentials, quotient; each exponential is a call and is made twice.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tvm/ffi/container/tensor.h>

void run(tvm::ffi::TensorView x_, tvm::ffi::TensorView out_) {
  const float* x = static_cast<const float*>(x_.data_ptr());
  float* out = static_cast<float*>(out_.data_ptr());
  const int64_t rows = x_.size(0), columns = x_.size(1);
  #pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * columns;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t c = 0; c < columns; ++c) top = std::max(top, row[c]);
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(row[c] - top);
    for (int64_t c = 0; c < columns; ++c) out[r * columns + c] = std::exp(row[c] - top) / sum;
  }
}
