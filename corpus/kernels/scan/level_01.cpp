/* ---
id: kernels/scan/level_01
title: Running sums and products of rows, several rows at a time
archs: [cpu]
families: [scan]
bottlenecks: [latency, dram-bw]
languages: [cpp]
--- */
// One idea: a scan is a chain, so let several run. Each step waits for the one before it, four cycles for an addition in double
// precision; CHAINS rows side by side keep the adder busy, and double precision loses nothing over millions of elements. A tile of each
// row is computed and scanned while it is in the L1 cache.
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
constexpr int CHAINS = 8;
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
constexpr int64_t GROUPS = (ROWS + CHAINS - 1) / CHAINS;

// One tile of N rows: what is scanned is computed into `lane`, scanned there in double precision, and handed on.
template <int N>
inline void tile(const Tensors& t, int64_t first, int64_t b, int64_t n, float (&lane)[CHAINS][BLOCK], double (&carry)[CHAINS]) {
  for (int q = 0; q < N; ++q) {
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) lane[q][j] = k_in(t, first + q, b + j);
  }
  double sums[N];
  for (int q = 0; q < N; ++q) sums[q] = carry[q];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = REVERSE ? n - 1 - i : i;
    #pragma GCC unroll 16
    for (int q = 0; q < N; ++q) {
      const double before = sums[q];
      sums[q] = PRODUCT ? before * lane[q][j] : before + lane[q][j];
      lane[q][j] = float(EXCLUSIVE ? before : sums[q]);
    }
  }
  for (int q = 0; q < N; ++q) carry[q] = sums[q];
  for (int q = 0; q < N; ++q) {
    #pragma omp simd
    for (int64_t j = 0; j < n; ++j) k_out(t, first + q, b + j, lane[q][j]);
  }
}

void work(const Tensors& t, int64_t begin, int64_t end) {
  alignas(64) static thread_local float lane[CHAINS][BLOCK];
  for (int64_t group = begin; group < end; ++group) {
    const int64_t first = group * CHAINS, many = std::min<int64_t>(CHAINS, ROWS - first);
    for (int64_t q = 0; q < many; q += many == CHAINS ? CHAINS : 1) {
      double carry[CHAINS];
      std::fill(carry, carry + CHAINS, START);
      for (int64_t done = 0; done < COLUMNS; done += BLOCK) {
        const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - done), b = REVERSE ? COLUMNS - done - n : done;
        if (many == CHAINS) tile<CHAINS>(t, first, b, n, lane, carry);
        else tile<1>(t, first + q, b, n, lane, carry);
      }
    }
  }
}

void launch(const Tensors& t) {
  #pragma omp parallel if (ROWS * COLUMNS > 16384)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    work(t, GROUPS * me / threads, GROUPS * (me + 1) / threads);
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
