/* ---
id: kernels/reduction/level_03
title: Column sums, a strip of neighbouring columns at a time
archs: [cpu]
families: [reduction, softmax, norm]
bottlenecks: [dram-bw]
languages: [cpp]
--- */
// One idea: read memory in its own order. Where the dimension that is folded is not the last one, a strip of neighbouring results is
// folded together: the inner loop runs along memory and is vector code, and its sums wait in the L1 cache, in double precision.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <omp.h>

#include <tvm/ffi/container/tensor.h>

namespace {

//@begin math
//@end math

//@begin shape
#ifndef BLOCK
#define BLOCK 256
#endif
constexpr int64_t ROWS = 4096, COLUMNS = 4096, INNER = 4096, STRIPS = (INNER + BLOCK - 1) / BLOCK, ITEMS = ROWS / INNER * STRIPS;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  float* out0;
};
//@end tensors

//@begin work
void work(const Tensors& t, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t b = item % STRIPS * BLOCK, n = std::min<int64_t>(BLOCK, INNER - b);
    alignas(64) double sum[BLOCK] = {};
    for (int64_t c = 0; c < COLUMNS; ++c) {
      const float* __restrict__ x = t.in0 + c * INNER + b;
      #pragma omp simd
      for (int64_t j = 0; j < n; ++j) sum[j] += x[j];
    }
    for (int64_t j = 0; j < n; ++j) t.out0[b + j] = float(sum[j]);
  }
}
//@end work

void launch(const Tensors& t) {
  #pragma omp parallel if (ROWS * COLUMNS > 65536)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    work(t, ITEMS * me / threads, ITEMS * (me + 1) / threads);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t);
}
//@end run
