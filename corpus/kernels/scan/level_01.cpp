/* ---
id: kernels/scan/level_01
title: Running sums and products of rows, eight elements at a time in double precision
archs: [cpu]
families: [scan]
bottlenecks: [latency, dram-bw]
languages: [cpp]
--- */
// One idea: shorten the chain. One element at a time, each waits four cycles for the sum before it; a vector of eight is scanned by three
// shifts that need nothing of what came before, and only its total goes on. Double precision loses nothing over millions of elements. A
// tile of the row is computed and scanned while it is in the L1 cache.
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
#define BLOCK 512
#endif
constexpr bool PRODUCT = false, REVERSE = false, EXCLUSIVE = false;
constexpr int64_t ROWS = 4096, COLUMNS = 4096;
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  float* out0;
};
//@end tensors

//@begin pieces
[[gnu::always_inline]] inline float k_in(const Tensors& t, int64_t r, int64_t c) { return t.in0[r * COLUMNS + c]; }
[[gnu::always_inline]] inline void k_out(const Tensors& t, int64_t r, int64_t c, float given) { t.out0[r * COLUMNS + c] = given; }
//@end pieces

constexpr double START = PRODUCT ? 1.0 : 0.0;
constexpr int64_t WIDE = 8;
static_assert(BLOCK % WIDE == 0, "a tile is cut into vectors");
typedef float floats __attribute__((vector_size(32)));
typedef double doubles __attribute__((vector_size(64)));

// Each element with what `carry` and those before it hold; `carry` takes all of them in.
[[gnu::always_inline]] inline doubles scanned(doubles x, double& carry) {
  const doubles none = {START, START, START, START, START, START, START, START};
  doubles moved = __builtin_shufflevector(x, none, 8, 0, 1, 2, 3, 4, 5, 6);
  x = PRODUCT ? x * moved : x + moved;
  moved = __builtin_shufflevector(x, none, 8, 8, 0, 1, 2, 3, 4, 5);
  x = PRODUCT ? x * moved : x + moved;
  moved = __builtin_shufflevector(x, none, 8, 8, 8, 8, 0, 1, 2, 3);
  x = PRODUCT ? x * moved : x + moved;
  const doubles before = {carry, carry, carry, carry, carry, carry, carry, carry};
  x = PRODUCT ? x * before : x + before;
  carry = x[WIDE - 1];
  return EXCLUSIVE ? __builtin_shufflevector(x, before, 8, 0, 1, 2, 3, 4, 5, 6) : x;
}

// One vector in the scan's order, from and to a tile.
[[gnu::always_inline]] inline void step(float* at, double& carry) {
  floats x;
  std::memcpy(&x, at, sizeof x);
  if (REVERSE) x = __builtin_shufflevector(x, x, 7, 6, 5, 4, 3, 2, 1, 0);
  x = __builtin_convertvector(scanned(__builtin_convertvector(x, doubles), carry), floats);
  if (REVERSE) x = __builtin_shufflevector(x, x, 7, 6, 5, 4, 3, 2, 1, 0);
  std::memcpy(at, &x, sizeof x);
}

void work(const Tensors& t, int64_t begin, int64_t end) {
  alignas(64) float tile[BLOCK];
  for (int64_t r = begin; r < end; ++r) {
    double carry = START;
    for (int64_t done = 0; done < COLUMNS; done += BLOCK) {
      const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - done), b = REVERSE ? COLUMNS - done - n : done;
      const int64_t whole = (n + WIDE - 1) / WIDE * WIDE, gap = REVERSE ? whole - n : 0;  // a last vector is filled up behind
      #pragma omp simd
      for (int64_t j = 0; j < n; ++j) tile[gap + j] = k_in(t, r, b + j);
      for (int64_t j = 0; j < whole - n; ++j) tile[REVERSE ? j : n + j] = float(START);
      for (int64_t i = 0; i < whole; i += WIDE) step(tile + (REVERSE ? whole - WIDE - i : i), carry);
      #pragma omp simd
      for (int64_t j = 0; j < n; ++j) k_out(t, r, b + j, tile[gap + j]);
    }
  }
}

void launch(const Tensors& t) {
  #pragma omp parallel if (ROWS * COLUMNS > 16384)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    work(t, ROWS * me / threads, ROWS * (me + 1) / threads);
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
