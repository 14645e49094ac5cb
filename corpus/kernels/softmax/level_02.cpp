/* ---
id: kernels/softmax/level_02
title: Softmax in three passes over a cache-resident row, output streamed to huge pages
archs: [cpu]
families: [softmax]
bottlenecks: [dram-bw, compute]
languages: [cpp]
--- */
// One idea: three passes cost memory once. The first pass pulls the row into the L1 cache and finds its maximum, the second leaves the
// exponentials in a row buffer and sums them, the third multiplies by one reciprocal and streams. The exponential is inline and free of
// branches, so the compiler makes vector code of it. A maximum by comparison skips NaN: a flag remembers that there was one.
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
[[gnu::always_inline]] inline int32_t k_bits(float x) { int32_t i; std::memcpy(&i, &x, 4); return i; }
[[gnu::always_inline]] inline float k_float(int32_t i) { float x; std::memcpy(&x, &i, 4); return x; }
// 2^n * e^r with r in +-ln(2)/2. Adding 1.5 * 2^23 rounds to an integer; two factors reach the subnormals and infinity.
[[gnu::always_inline]] inline float k_exp(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const float shifted = c * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const int32_t i = k_bits(shifted) - 0x4B400000;
  const float r = (c - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.38145999e-3f;
  p = p * r + 8.36871541e-3f;
  p = p * r + 4.16683879e-2f;
  p = p * r + 1.66665206e-1f;
  p = p * r + 4.99999934e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t half = i >> 1;
  return p * k_float((half + 127) << 23) * k_float((i - half + 127) << 23);
}
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
  const Row row_e(COLUMNS);
  float* __restrict__ e = row_e.data;
  for (int64_t r = begin; r < end; ++r) {
    const float* __restrict__ x = t.in0 + r * COLUMNS;
    float top = -INFINITY;
    int32_t nan = 0;
    #pragma omp simd reduction(max : top) reduction(| : nan)
    for (int64_t j = 0; j < COLUMNS; ++j) {
      top = x[j] > top ? x[j] : top;
      nan |= x[j] != x[j];
    }
    if (nan) top = NAN;
    double sum = 0.0;
    for (int64_t b = 0; b < COLUMNS; b += BLOCK) {
      const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - b);
      float s = 0.0f;
      #pragma omp simd reduction(+ : s)
      for (int64_t j = 0; j < n; ++j) {
        const float v = k_exp(x[b + j] - top);
        e[b + j] = v;
        s += v;
      }
      sum += s;
    }
    const float scale = float(1.0 / sum);
    for (int64_t b = 0; b < COLUMNS; b += BLOCK) {
      const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - b);
      alignas(64) float tile[BLOCK];
      #pragma omp simd
      for (int64_t j = 0; j < n; ++j) tile[j] = e[b + j] * scale;
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
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  Tensors t;
  t.in0 = static_cast<const float*>(x.data_ptr());
  t.out0 = static_cast<float*>(out.data_ptr());
  k_huge_pages(t.out0, ROWS * COLUMNS * sizeof(float));
  launch(t);
}
//@end run
