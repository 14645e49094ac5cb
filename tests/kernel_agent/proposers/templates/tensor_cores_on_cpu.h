// What the product kernels say in PTX, on the CPU: fragments as the PTX ISA lays them out; copies arrive as late as they may, or,
// with COPIES_ARRIVE_AT_ONCE, as early.
#pragma once
#include <cstdlib>
#include <deque>

#define __align__(n) __attribute__((aligned(n)))

struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(uint32_t x) { float f; std::memcpy(&f, &x, 4); return f; }

struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
struct alignas(4) __half2 { __half x, y; };
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }

constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 0;
template <class F> int cudaFuncSetAttribute(F, int, int) { return 0; }

namespace ptx {

struct Copy { float* to; const float* from; int bytes; bool real; };
inline thread_local std::vector<Copy> asked;
inline thread_local std::deque<std::vector<Copy>> groups;

template <int BYTES> void copy(float* to, const float* from, bool real) {
  if (reinterpret_cast<uintptr_t>(to) % BYTES || reinterpret_cast<uintptr_t>(from) % BYTES) std::abort();  // misaligned
  asked.push_back({to, from, BYTES, real});
#ifdef COPIES_ARRIVE_AT_ONCE
  real ? std::memcpy(to, from, BYTES) : std::memset(to, 0, BYTES);
  asked.clear();
#endif
}
inline void commit() { groups.push_back(std::move(asked)); asked.clear(); }
template <int LEFT> void wait() {
  for (; groups.size() > LEFT; groups.pop_front())
    for (const Copy& c : groups.front()) c.real ? std::memcpy(c.to, c.from, c.bytes) : std::memset(c.to, 0, c.bytes);
}

struct Registers { uint32_t a[4], b[2]; };
inline Registers registers[1024];

inline float bfloat16_of(uint32_t word, int half) { return __uint_as_float(word >> 16 * half << 16); }
inline float float16_of(uint32_t word, int half) { uint16_t h = uint16_t(word >> 16 * half); __half x; std::memcpy(&x, &h, 2); return float(x); }
inline float tf32_of(uint32_t word, int) { return __uint_as_float(word & 0xFFFFE000); }

// d (16 x 8) += a (16 x 8 PER) b (8 PER x 8), PER operands in a register of four bytes.
template <int PER, class Of> void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Of of) {
  const int lane = threadIdx.x % 32, first = threadIdx.x - lane;
  auto& warp = *team->warps[threadIdx.x / 32];
  std::memcpy(registers[threadIdx.x].a, a, 16), std::memcpy(registers[threadIdx.x].b, b, 8);
  warp.arrive_and_wait();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
    double exact = 0;
    for (int k = 0; k < 8 * PER; ++k) {
      const int t = k / PER % 4, late = k / PER / 4;
      exact += double(of(registers[first + row % 8 * 4 + t].a[row / 8 + 2 * late], k % PER)) * of(registers[first + col * 4 + t].b[late], k % PER);
    }
    c[i] = float(c[i] + exact);
  }
  warp.arrive_and_wait();
}
inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma<2>(c, a, b, bfloat16_of); }
inline void mma_fp16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma<2>(c, a, b, float16_of); }
inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma<1>(c, a, b, tf32_of); }
inline uint32_t to_tf32(float x) { uint32_t i; std::memcpy(&i, &x, 4); return (i + 0x1000) & ~0x1FFFu; }

}  // namespace ptx
