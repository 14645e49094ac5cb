/* ---
id: kernels/norm/level_02
title: RMS norm of a residual sum, the sum kept in a cache-resident row, output streamed to huge pages
archs: [cpu]
families: [norm]
bottlenecks: [dram-bw]
languages: [cpp]
--- */
// One idea: touch memory once. The first pass reads the inputs and leaves their sum in a row buffer that stays in the L1 cache; the
// second reads only that buffer and writes the output by streaming stores, which skip the read that an ordinary store makes of the
// line it is about to overwrite. A fresh output of many megabytes costs one page fault a page: asking for 2 MiB pages before the
// first touch makes them 512 times fewer.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#include <omp.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tvm/ffi/container/tensor.h>

namespace {

//@begin math
[[gnu::always_inline]] inline float k_rsqrt(float x) { return 1.0f / std::sqrt(x); }
//@end math

//@begin shape
constexpr int64_t ROWS = 4096, COLUMNS = 4096, ITEMS = ROWS;
#ifndef BLOCK
#define BLOCK 1024
#endif
//@end shape

//@begin tensors
struct Tensors {
  const float* in0;  // x
  const float* in1;  // residual
  const float* in2;  // weight
  float* out0;
};
//@end tensors

// Copies a tile that is in the cache to memory that won't be read soon, whole lines at a time where the processor can.
template <class T>
inline void k_stream(T* to, const T* from, int64_t n) {
#if defined(__AVX__)
  auto* target = reinterpret_cast<char*>(to);
  auto* source = reinterpret_cast<const char*>(from);
  int64_t left = n * int64_t(sizeof(T));
  const int64_t head = std::min<int64_t>(left, -reinterpret_cast<intptr_t>(target) & 63);
  std::memcpy(target, source, head);
  for (target += head, source += head, left -= head; left >= 64; target += 64, source += 64, left -= 64) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target), _mm512_loadu_si512(source));
#else
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + 32), high);
#endif
  }
  std::memcpy(target, source, left);
#else
  std::memcpy(to, from, n * sizeof(T));
#endif
}

// Streaming stores are ordered before whatever the caller does next.
inline void k_fence() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

// Asks for 2 MiB pages under memory that nobody has touched yet.
inline void k_huge_pages(void* p, int64_t bytes) {
#if defined(__linux__)
  constexpr intptr_t page = 2 << 20;
  const intptr_t first = (reinterpret_cast<intptr_t>(p) + page - 1) & -page;
  const intptr_t last = (reinterpret_cast<intptr_t>(p) + bytes) & -page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// One row of floats for one thread, aligned to cache lines.
struct Row {
  explicit Row(int64_t n) : data(new (std::align_val_t(64)) float[n]) {}
  ~Row() { ::operator delete[](data, std::align_val_t(64)); }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  float* const data;
};

//@begin work
void work(const Tensors& t, int64_t begin, int64_t end) {
  const Row row_h(COLUMNS);
  float* __restrict__ h = row_h.data;
  for (int64_t r = begin; r < end; ++r) {
    double squares = 0.0;
    for (int64_t b = 0; b < COLUMNS; b += BLOCK) {
      const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - b);
      const float* __restrict__ x = t.in0 + r * COLUMNS + b;
      const float* __restrict__ y = t.in1 + r * COLUMNS + b;
      float s = 0.0f;
      #pragma omp simd reduction(+ : s)
      for (int64_t j = 0; j < n; ++j) {
        const float v = x[j] + y[j];
        h[b + j] = v;
        s += v * v;
      }
      squares += s;
    }
    const float scale = k_rsqrt(float(squares) / COLUMNS + 1e-6f);
    for (int64_t b = 0; b < COLUMNS; b += BLOCK) {
      const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - b);
      const float* __restrict__ w = t.in2 + b;
      alignas(64) float tile[BLOCK];
      #pragma omp simd
      for (int64_t j = 0; j < n; ++j) tile[j] = h[b + j] * scale * w[j];
      k_stream(t.out0 + r * COLUMNS + b, tile, n);
    }
  }
}
//@end work

void launch(const Tensors& t) {
  #pragma omp parallel if (ROWS * COLUMNS > 65536)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    work(t, ITEMS * me / threads, ITEMS * (me + 1) / threads);
    k_fence();
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView residual, tvm::ffi::TensorView weight, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.in1 = static_cast<const float*>(residual.data_ptr());
  t.in2 = static_cast<const float*>(weight.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  k_huge_pages(t.out0, ROWS * COLUMNS * sizeof(float));
  launch(t);
}
//@end run
