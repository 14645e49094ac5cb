/* ---
id: kernels/sort/level_01
title: Where the largest element of each row stands, found by tiles
archs: [cpu]
families: [sort, reduction]
bottlenecks: [dram-bw, compute]
languages: [cpp]
--- */
// One idea: look for the place only where the value got better. The maximum of a tile is vector code; its place is looked for only in a
// tile that holds a larger value than all before it, and of random tiles few do. Where the dimension is not the last, neighbouring columns
// are compared side by side, each with its own place. NaN is larger than everything, and of equal values the first counts, as in PyTorch.
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
constexpr bool SMALLEST = false;
constexpr int64_t OUTER = 4096, LENGTH = 4096, INNER = 1;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  int64_t* out0;
};
//@end tensors

//@begin pieces
[[gnu::always_inline]] inline float k_in(const Tensors& t, int64_t r, int64_t c) { return t.in0[r * (INNER > 1 ? INNER : LENGTH) + c]; }
//@end pieces

constexpr float WORST = SMALLEST ? INFINITY : -INFINITY;
constexpr int64_t STRIPS = (INNER + BLOCK - 1) / BLOCK, ITEMS = OUTER * STRIPS;

[[gnu::always_inline]] inline bool better(float x, float y) { return SMALLEST ? x < y : x > y; }

// Whether x is the value that is looked for, which may be NaN.
[[gnu::always_inline]] inline bool sought(float x, float top) { return x == top || (x != x && top != top); }

// The first place of the best value of row r.
inline void row(const Tensors& t, int64_t r, float* __restrict__ tile) {
  float best = WORST;
  int64_t place = 0;
  for (int64_t b = 0; b < LENGTH; b += BLOCK) {
    const int64_t n = std::min<int64_t>(BLOCK, LENGTH - b);
    float top = WORST;
    int32_t nan = 0;
    if constexpr (SMALLEST) {
      #pragma omp simd reduction(min : top) reduction(| : nan)
      for (int64_t j = 0; j < n; ++j) {
        tile[j] = k_in(t, r, b + j);
        top = tile[j] < top ? tile[j] : top;
        nan |= tile[j] != tile[j];
      }
    } else {
      #pragma omp simd reduction(max : top) reduction(| : nan)
      for (int64_t j = 0; j < n; ++j) {
        tile[j] = k_in(t, r, b + j);
        top = tile[j] > top ? tile[j] : top;
        nan |= tile[j] != tile[j];
      }
    }
    if (!nan && !better(top, best)) continue;
    if (nan) top = NAN;
    int32_t found = int32_t(n);
    #pragma omp simd reduction(min : found)
    for (int32_t j = 0; j < int32_t(n); ++j) {
      const int32_t at = sought(tile[j], top) ? j : int32_t(n);
      found = at < found ? at : found;
    }
    place = b + found;
    best = top;
    if (nan) break;
  }
  t.out0[r] = place;
}

// The same for a strip of n neighbouring columns from b on.
inline void strip(const Tensors& t, int64_t o, int64_t b, int64_t n, float* __restrict__ best, int32_t* __restrict__ place) {
  for (int64_t j = 0; j < n; ++j) {
    best[j] = WORST;
    place[j] = 0;
  }
  for (int32_t i = 0; i < int32_t(LENGTH); ++i) {
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const float x = k_in(t, o * LENGTH + i, b + j);
      const bool now = better(x, best[j]) || (x != x && best[j] == best[j]);
      best[j] = now ? x : best[j];
      place[j] = now ? i : place[j];
    }
  }
  for (int64_t j = 0; j < n; ++j) t.out0[o * INNER + b + j] = place[j];
}

void work(const Tensors& t, int64_t begin, int64_t end) {
  alignas(64) static thread_local float best[BLOCK];
  alignas(64) static thread_local int32_t place[BLOCK];
  for (int64_t item = begin; item < end; ++item) {
    if constexpr (INNER == 1) {
      row(t, item, best);
    } else {
      const int64_t b = item % STRIPS * BLOCK;
      strip(t, item / STRIPS, b, std::min<int64_t>(BLOCK, INNER - b), best, place);
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
  t.out0 = static_cast<int64_t*>(out.data_ptr());
  launch(t);
}
//@end run
