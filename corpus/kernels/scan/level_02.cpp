/* ---
id: kernels/scan/level_02
title: Running sums and products down the columns, a strip of columns at a time
archs: [cpu]
families: [scan]
bottlenecks: [dram-bw]
languages: [cpp]
--- */
// One idea: where the scanned dimension is not the last, neighbours are independent. A strip of BLOCK columns keeps its running values in
// the L1 cache, in double precision; each row of the strip is vector code.
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
constexpr bool PRODUCT = false, REVERSE = false, EXCLUSIVE = false;
constexpr int64_t OUTER = 16, LENGTH = 1024, INNER = 1024;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  float* out0;
};
//@end tensors

//@begin pieces
[[gnu::always_inline]] inline float k_in(const Tensors& t, int64_t r, int64_t c) { return t.in0[r * INNER + c]; }
[[gnu::always_inline]] inline void k_out(const Tensors& t, int64_t r, int64_t c, float given) { t.out0[r * INNER + c] = given; }
//@end pieces

constexpr int64_t STRIPS = (INNER + BLOCK - 1) / BLOCK, ITEMS = OUTER * STRIPS;

void work(const Tensors& t, int64_t begin, int64_t end) {
  alignas(64) static thread_local double sums[BLOCK];
  for (int64_t item = begin; item < end; ++item) {
    const int64_t o = item / STRIPS, b = item % STRIPS * BLOCK, n = std::min<int64_t>(BLOCK, INNER - b);
    std::fill(sums, sums + n, PRODUCT ? 1.0 : 0.0);
    for (int64_t i = 0; i < LENGTH; ++i) {
      const int64_t r = o * LENGTH + (REVERSE ? LENGTH - 1 - i : i);
      #pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        const double before = sums[j], x = k_in(t, r, b + j);
        sums[j] = PRODUCT ? before * x : before + x;
        k_out(t, r, b + j, float(EXCLUSIVE ? before : sums[j]));
      }
    }
  }
}

void launch(const Tensors& t) {
  #pragma omp parallel if (OUTER * LENGTH * INNER > 16384)
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
