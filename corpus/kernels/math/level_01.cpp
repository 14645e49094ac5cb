/* ---
id: kernels/math/level_01
title: Elementary functions in C++ that a compiler turns into vector code
archs: [cpu]
families: [pointwise, softmax, norm]
bottlenecks: [compute, latency]
languages: [cpp]
--- */
// One idea: branch-free functions of one float, so that `#pragma omp simd` over a loop that calls them gives vector code without
// -ffast-math. NaN goes through, infinities have their limits, errors stay within about two units in the last place (five for erf).
// std::exp and its kin are calls: a loop that makes one runs an element at a time.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <tvm/ffi/container/tensor.h>

namespace {

//@begin k_bits
[[gnu::always_inline]] inline int32_t k_bits(float x) { int32_t i; std::memcpy(&i, &x, 4); return i; }
//@end k_bits
//@begin k_float
[[gnu::always_inline]] inline float k_float(int32_t i) { float x; std::memcpy(&x, &i, 4); return x; }
//@end k_float

//@begin k_exp
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
//@end k_exp

//@begin k_expm1
// 2^n * (e^r - 1) + (2^n - 1), exact where n is 0; beyond 2^127 the exponential itself is the answer.
[[gnu::always_inline]] inline float k_expm1(float x) {
  float c = x > 88.0f ? 88.0f : x;
  c = c < -20.0f ? -20.0f : c;
  const float shifted = c * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (c - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.0f / 40320;
  p = p * r + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  const float scale = k_float((k_bits(shifted) - 0x4B400000 + 127) << 23);
  return x > 88.0f ? k_exp(x) : p * scale + (scale - 1.0f);
}
//@end k_expm1

//@begin k_log
// m in [sqrt(1/2), sqrt(2)), f = m - 1, s = f / (2 + f): log(m) = f - f*f/2 + s * (f*f/2 + series in s*s).
[[gnu::always_inline]] inline float k_log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t i = k_bits(scaled) - 0x3F3504F3;
  const float e = float(i >> 23) - (tiny ? 23.0f : 0.0f);
  const float f = k_float((i & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.0f / 11;
  p = p * z + 2.0f / 9;
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  const float h = 0.5f * f * f;
  float y = e * 0.693145752f - ((h - (s * (h + p * z) + e * 1.42860677e-6f)) - f);
  y = x == INFINITY ? x : y;
  y = x == 0.0f ? -INFINITY : y;
  return x >= 0.0f ? y : NAN;
}
//@end k_log

//@begin k_log1p
// log(1 + x) with the part of x that the sum rounded away put back.
[[gnu::always_inline]] inline float k_log1p(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);
  const float whole = k_log(u);
  const float y = u == INFINITY ? whole : whole + lost / u;
  return u == 0.0f ? whole : y;
}
//@end k_log1p

//@begin k_tanh
// e / (e + 2) with e = exp(2|x|) - 1; from 10 on the answer is one.
[[gnu::always_inline]] inline float k_tanh(float x) {
  const float a = std::fabs(x);
  const float c = a > 10.0f ? 10.0f : a;
  const float e = k_expm1(2.0f * c);
  return std::copysign(e / (e + 2.0f), x);
}
//@end k_tanh

//@begin k_sigmoid
[[gnu::always_inline]] inline float k_sigmoid(float x) { return 1.0f / (1.0f + k_exp(-x)); }
//@end k_sigmoid

//@begin k_erf
// A minimax fit made for this file, c * P(c*c) / Q(c*c): error 2e-8 as a formula, up to 5.3 units in the last place in float arithmetic.
// Beyond 3.92 float knows no difference from one.
[[gnu::always_inline]] inline float k_erf(float x) {
  float c = x > 3.92f ? 3.92f : x;
  c = c < -3.92f ? -3.92f : c;
  const float z = c * c;
  float p = 2.05002902e-06f;
  p = p * z + 2.84872192e-04f;
  p = p * z + 3.76543403e-03f;
  p = p * z + 5.27481623e-02f;
  p = p * z + 1.90403134e-01f;
  p = p * z + 1.12837911f;
  float q = 3.80905658e-05f;
  q = q * z + 1.16247905e-03f;
  q = q * z + 1.49688618e-02f;
  q = q * z + 1.14107624e-01f;
  q = q * z + 5.02073109e-01f;
  q = q * z + 1.0f;
  return c * p / q;
}
//@end k_erf

//@begin k_rsqrt
[[gnu::always_inline]] inline float k_rsqrt(float x) { return 1.0f / std::sqrt(x); }
//@end k_rsqrt
//@begin k_max
// The larger one, and NaN where either is NaN. One condition at a time: with `||` a chain of them stays scalar code.
[[gnu::always_inline]] inline float k_max(float x, float y) {
  const float m = x > y ? x : y;
  return x != x ? x : m;
}
//@end k_max
//@begin k_min
[[gnu::always_inline]] inline float k_min(float x, float y) {
  const float m = x < y ? x : y;
  return x != x ? x : m;
}
//@end k_min
//@begin k_sign
[[gnu::always_inline]] inline float k_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? x : 0.0f; }
//@end k_sign
//@begin k_remainder
[[gnu::always_inline]] inline float k_remainder(float x, float y) {
  const float m = std::fmod(x, y);
  return m != 0.0f && (m < 0.0f) != (y < 0.0f) ? m + y : m;
}
//@end k_remainder

//@begin k_turn
// G neighbours of each of n places, `stride` apart, become G rows of n, W apart.
template <int64_t G, int64_t W>
inline void k_turn(const float* __restrict__ from, int64_t stride, float* __restrict__ to, int64_t n) {
  for (int64_t j = 0; j < n; ++j)
    for (int64_t g = 0; g < G; ++g) to[g * W + j] = from[j * stride + g];
}
//@end k_turn

//@begin k_bfloat16
struct k_bfloat16 { uint16_t bits; };
[[gnu::always_inline]] inline float k_load(const k_bfloat16* p) { return k_float(int32_t(uint32_t(p->bits) << 16)); }
[[gnu::always_inline]] inline void k_store(k_bfloat16* p, float x) {
  const uint32_t i = uint32_t(k_bits(x));
  p->bits = x != x ? 0x7FC0 : uint16_t((i + 0x7FFF + (i >> 16 & 1)) >> 16);
}
//@end k_bfloat16
//@begin k_float16
using k_float16 = _Float16;
[[gnu::always_inline]] inline float k_load(const k_float16* p) { return float(*p); }
[[gnu::always_inline]] inline void k_store(k_float16* p, float x) { *p = k_float16(x); }
//@end k_float16
//@begin k_round_float16
[[gnu::always_inline]] inline float k_round_float16(float x) { return float(_Float16(x)); }
//@end k_round_float16
//@begin k_round_bfloat16
[[gnu::always_inline]] inline float k_round_bfloat16(float x) {
  const uint32_t i = uint32_t(k_bits(x));
  return x != x ? x : k_float(int32_t((i + 0x7FFF + (i >> 16 & 1)) & 0xFFFF0000));
}
//@end k_round_bfloat16
//@begin k_bool
using k_bool = uint8_t;
[[gnu::always_inline]] inline float k_load(const k_bool* p) { return float(*p); }
[[gnu::always_inline]] inline void k_store(k_bool* p, float x) { *p = x != 0.0f; }
//@end k_bool
//@begin k_int64
using k_int64 = int64_t;
[[gnu::always_inline]] inline float k_load(const k_int64* p) { return float(*p); }
//@end k_int64
//@begin k_float32
using k_float32 = float;
[[gnu::always_inline]] inline float k_load(const k_float32* p) { return *p; }
[[gnu::always_inline]] inline void k_store(k_float32* p, float x) { *p = x; }
//@end k_float32

void work(const float* in, float* out, int64_t begin, int64_t end) {
  #pragma omp simd
  for (int64_t i = begin; i < end; ++i) out[i] = k_erf(in[i]) + k_tanh(in[i]) + k_log1p(k_exp(in[i]));
}

}  // namespace

void run(tvm::ffi::TensorView in, tvm::ffi::TensorView out) {
  const int64_t block = 4096, n = out.numel();
  #pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < n; i += block) {
    work(static_cast<const float*>(in.data_ptr()), static_cast<float*>(out.data_ptr()), i, std::min(i + block, n));
  }
}
