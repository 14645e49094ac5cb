/* ---
id: kernels/pooling/level_01
title: Pooling, first down the columns, then along the row, on a line in the cache
archs: [cpu]
families: [pooling]
bottlenecks: [dram-bw, compute]
languages: [cpp]
--- */
// One idea: a window's maximum or sum is that of its columns. The rows under a window are combined into a line, element by element in
// memory's order, which is vector code whatever the stride; only then each output takes its few places of the line. The line has the
// padding as well, so no output asks whether it stands at an edge. Dimensions that a problem does not have are of one element.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <omp.h>

#include <tvm/ffi/container/tensor.h>

namespace {

//@begin math
[[gnu::always_inline]] inline float k_max(float x, float y) { return x > y || x != x ? x : y; }
//@end math

//@begin shape
#ifndef BLOCK
#define BLOCK 256
#endif
constexpr bool MAXIMUM = true, PADDING_COUNTS = true, ADAPTIVE = false;
constexpr int64_t PLANES = 64, DIVISOR = 0;
constexpr int64_t IN[3] = {1, 56, 56}, OUT[3] = {1, 28, 28};
constexpr int64_t WINDOW[3] = {1, 2, 2}, STRIDE[3] = {1, 2, 2}, PAD[3] = {0, 0, 0}, STEP[3] = {1, 1, 1};
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  float* out0;
};
//@end tensors

//@begin pieces
[[gnu::always_inline]] inline float k_in(const Tensors& t, int64_t r, int64_t c) { return t.in0[r * IN[2] + c]; }
[[gnu::always_inline]] inline void k_out(const Tensors& t, int64_t r, int64_t c, float given) { t.out0[r * OUT[2] + c] = given; }
//@end pieces

// The first place of an output's window along a dimension, which may lie in the padding, and how many places the window has.
constexpr int64_t first(int d, int64_t o) { return ADAPTIVE ? o * IN[d] / OUT[d] : o * STRIDE[d] - PAD[d]; }
constexpr int64_t count(int d, int64_t o) { return ADAPTIVE ? ((o + 1) * IN[d] + OUT[d] - 1) / OUT[d] - first(d, o) : WINDOW[d]; }

// How many places of a window an average counts along a dimension.
constexpr int64_t counted(int d, int64_t o) {
  const int64_t from = first(d, o), to = std::min(from + count(d, o), IN[d] + (PADDING_COUNTS ? PAD[d] : 0));
  return to - (PADDING_COUNTS ? from : std::max<int64_t>(from, 0));
}

[[gnu::always_inline]] inline float combine(float x, float y) { return MAXIMUM ? k_max(x, y) : x + y; }

constexpr float EMPTY = MAXIMUM ? -INFINITY : 0.0f;
constexpr int64_t TILES = (OUT[2] + BLOCK - 1) / BLOCK, ITEMS = PLANES * OUT[0] * OUT[1] * TILES;
constexpr int64_t LINE = ADAPTIVE ? IN[2] : (std::min<int64_t>(BLOCK, OUT[2]) - 1) * STRIDE[2] + (WINDOW[2] - 1) * STEP[2] + 1;

// The line of places x0, x0 + 1, ... under a tile of outputs, combined over the rows of their windows.
inline void columns(const Tensors& t, int64_t plane, int64_t oz, int64_t oy, int64_t x0, int64_t length, float* __restrict__ line) {
  std::fill(line, line + length, EMPTY);
  const int64_t begin = std::max<int64_t>(0, -x0), end = std::min(length, IN[2] - x0);
  for (int64_t i = 0; i < count(0, oz); ++i) {
    const int64_t z = first(0, oz) + i * STEP[0];
    if (z < 0 || z >= IN[0]) continue;
    for (int64_t k = 0; k < count(1, oy); ++k) {
      const int64_t y = first(1, oy) + k * STEP[1];
      if (y < 0 || y >= IN[1]) continue;
      const int64_t r = (plane * IN[0] + z) * IN[1] + y;
      #pragma omp simd
      for (int64_t j = begin; j < end; ++j) line[j] = combine(k_in(t, r, x0 + j), line[j]);
    }
  }
}

void work(const Tensors& t, int64_t begin, int64_t end) {
  alignas(64) static thread_local float line[LINE], result[BLOCK];
  for (int64_t item = begin; item < end; ++item) {
    const int64_t r = item / TILES, b = item % TILES * BLOCK, n = std::min<int64_t>(BLOCK, OUT[2] - b);
    const int64_t oy = r % OUT[1], oz = r / OUT[1] % OUT[0], x0 = first(2, b);
    const int64_t length = std::min(LINE, first(2, b + n - 1) + (count(2, b + n - 1) - 1) * STEP[2] + 1 - x0);
    columns(t, r / (OUT[0] * OUT[1]), oz, oy, x0, length, line);
    if constexpr (ADAPTIVE) {
      for (int64_t j = 0; j < n; ++j) {
        float whole = EMPTY;
        for (int64_t k = 0; k < count(2, b + j); ++k) whole = combine(line[first(2, b + j) - x0 + k], whole);
        result[j] = whole;
      }
    } else {
      std::fill(result, result + n, EMPTY);
      for (int64_t k = 0; k < WINDOW[2]; ++k) {
        const float* __restrict__ from = line + k * STEP[2];
        #pragma omp simd
        for (int64_t j = 0; j < n; ++j) result[j] = combine(from[j * STRIDE[2]], result[j]);
      }
    }
    if constexpr (!MAXIMUM) {
      const int64_t above = counted(0, oz) * counted(1, oy);
      for (int64_t j = 0; j < n; ++j) result[j] /= float(DIVISOR ? DIVISOR : above * counted(2, b + j));
    }
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) k_out(t, r, b + j, result[j]);
  }
}

void launch(const Tensors& t) {
  #pragma omp parallel if (PLANES * OUT[0] * OUT[1] * OUT[2] > 16384)
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
