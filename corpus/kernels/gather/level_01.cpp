/* ---
id: kernels/gather/level_01
title: Rows and elements looked up by index, and what follows done on the way
archs: [cpu]
families: [gather]
bottlenecks: [dram-bw, latency]
languages: [cpp]
--- */
// One idea: look up once, work on the way. A row that one index names is copied as vector code, with whatever is done to it before it is
// stored; the rest of memory stays untouched. An index outside of what there is gives NaN, and no memory is read.
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
#define BLOCK 1024
#endif
constexpr bool SHARED = true;  // one index for a whole row
constexpr int64_t OUTER = 1, GIVEN = 50000, WANTED = 4096, INNER = 768;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;    // weight
  const int64_t* in1;  // indices
  float* out0;
};
//@end tensors

//@begin pieces
[[gnu::always_inline]] inline float k_in(const Tensors& t, int64_t r, int64_t c) { return t.in0[r * INNER + c]; }
[[gnu::always_inline]] inline int64_t k_at(const Tensors& t, int64_t r, int64_t) { return t.in1[r]; }
[[gnu::always_inline]] inline void k_out(const Tensors& t, int64_t r, int64_t c, float given) { t.out0[r * INNER + c] = given; }
//@end pieces

constexpr int64_t ROWS = INNER > 1 ? OUTER * WANTED : OUTER, COLUMNS = INNER > 1 ? INNER : WANTED;
constexpr int64_t TILES = (COLUMNS + BLOCK - 1) / BLOCK, ITEMS = ROWS * TILES;

void work(const Tensors& t, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t r = item / TILES, b = item % TILES * BLOCK, last = std::min<int64_t>(b + BLOCK, COLUMNS);
    if constexpr (SHARED && INNER > 1) {
      const int64_t at = k_at(t, r, 0);
      if (at < 0 || at >= GIVEN) {
        for (int64_t c = b; c < last; ++c) k_out(t, r, c, NAN);
        continue;
      }
      const int64_t from = r / WANTED * GIVEN + at;
      #pragma omp simd
      for (int64_t c = b; c < last; ++c) k_out(t, r, c, k_in(t, from, c));
    } else {
      for (int64_t c = b; c < last; ++c) {
        const int64_t at = k_at(t, r, c);
        const bool there = at >= 0 && at < GIVEN;
        k_out(t, r, c, !there ? NAN : INNER > 1 ? k_in(t, r / WANTED * GIVEN + at, c) : k_in(t, r, at));
      }
    }
  }
}

void launch(const Tensors& t) {
  #pragma omp parallel if (ROWS * COLUMNS > 16384)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    work(t, ITEMS * me / threads, ITEMS * (me + 1) / threads);
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView weight, tvm::ffi::TensorView indices, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(weight.data_ptr());
  t.in1 = static_cast<const int64_t*>(indices.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  launch(t);
}
//@end run
