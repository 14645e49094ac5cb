/* ---
id: kernels/reduction/level_01
title: Row sums in one plain loop a row
archs: [cpu]
families: [reduction]
bottlenecks: [latency]
languages: [cpp]
--- */
// The starting point: a thread a row and one sum, so each addition waits for the last one and the error grows with the row.
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
    float sum = 0.0f;
    for (int64_t c = 0; c < columns; ++c) sum += x[r * columns + c];
    out[r] = sum;
  }
}
