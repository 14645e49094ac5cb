// What the product kernels say in PTX, on the CPU: fragments as the PTX ISA lays them out; copies arrive as late as they may, or,
// with COPIES_ARRIVE_AT_ONCE, as early.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <utility>

#define __align__(n) __attribute__((aligned(n)))
#define __constant__

struct alignas(8) float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
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
struct Copies { std::vector<Copy> asked; std::deque<std::vector<Copy>> groups; };
inline Copies copies[1024];  // of each thread

template <int BYTES> void copy(float* to, const float* from, bool real) {
  if (reinterpret_cast<uintptr_t>(to) % BYTES || reinterpret_cast<uintptr_t>(from) % BYTES) std::abort();  // misaligned
#ifdef COPIES_ARRIVE_AT_ONCE
  real ? std::memcpy(to, from, BYTES) : std::memset(to, 0, BYTES);
#else
  copies[threadIdx.x].asked.push_back({to, from, BYTES, real});
#endif
}
inline void commit() {
  auto& [asked, groups] = copies[threadIdx.x];
  groups.push_back(std::move(asked)), asked.clear();
}
template <int LEFT> void wait() {
  auto& groups = copies[threadIdx.x].groups;
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
  auto& warp = team->warps[threadIdx.x / 32];
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
struct Tf32 {  // a register of a fragment, or a float
  uint32_t bits;
  operator uint32_t() const { return bits; }
  operator float() const { return __uint_as_float(bits); }
};
inline Tf32 to_tf32(float x) { uint32_t i; std::memcpy(&i, &x, 4); return {(i + 0x1000) & ~0x1FFFu}; }


// Hopper: copies of boxes into swizzled rows of 128 bytes, barriers that count them, and products of warpgroups.
struct Map { const uint8_t* data; int64_t size, depth, rows, batches; int tall; };
template <class E> Map map_of(const E* data, int64_t depth, int64_t rows, int64_t batches, int tall) {
  if (depth * sizeof(E) % 16 || reinterpret_cast<uintptr_t>(data) % 16) std::abort();  // what no tensor map describes
  return {reinterpret_cast<const uint8_t*>(data), sizeof(E), depth, rows, batches, tall};
}

// Of an address in a tile that begins at a multiple of 1024 bytes.
inline uintptr_t swizzled(uintptr_t at) { return at ^ (at >> 7 & 7) << 4; }
inline uint8_t* ring;  // where the block's tiles begin
inline uint8_t* aligned(uint8_t* p) { return ring = p + (1024 - reinterpret_cast<uintptr_t>(p) % 1024) % 1024; }

struct Barrier { int arrivals, missing; int64_t bytes; uint32_t phase; };
inline std::map<const uint64_t*, Barrier> barriers;
inline void turn(Barrier& bar) {
  if (bar.missing == 0 && bar.bytes == 0) bar.missing = bar.arrivals, ++bar.phase, idle = 0;
}
inline void init(uint64_t* bar, int arrivals) { barriers[bar] = {arrivals, arrivals, 0, 0}; }
inline void fence_init() {}
inline void arrive(uint64_t* bar) { --barriers[bar].missing, turn(barriers[bar]); }
inline void expect(uint64_t* bar, uint32_t bytes) { barriers[bar].bytes += bytes, arrive(bar); }
inline std::map<const uint64_t*, std::vector<std::function<void()>>> late;  // copies that arrive when somebody waits for them
template <class Copy> void bring(uint64_t* bar, uint32_t bytes, Copy copy) {
  const auto whole = [=] { copy(), barriers[bar].bytes -= bytes, turn(barriers[bar]); };
#ifdef BOXES_ARRIVE_LATE
  late[bar].push_back(whole);
#else
  whole();
#endif
}
inline void wait(uint64_t* bar, uint32_t parity) {
  team->wait([=] {
    for (const auto& copy : std::exchange(late[bar], {})) copy();
    return (barriers[bar].phase & 1) != parity;
  });
}
inline void load(const Map& map, uint8_t* to, uint64_t* bar, int k, int row, int batch) {
  bring(bar, map.tall * 128, [=] {
    for (int r = 0; r < map.tall; ++r) {
      for (int i = 0; i < 128 / map.size; ++i) {
        const bool real = row + r < map.rows && k + i < map.depth;
        void* at = reinterpret_cast<void*>(swizzled(reinterpret_cast<uintptr_t>(to) + r * 128 + i * map.size));
        if (real) std::memcpy(at, map.data + ((batch * map.rows + row + r) * map.depth + k + i) * map.size, map.size);
        else std::memset(at, 0, map.size);
      }
    }
  });
}
// A dense tensor of five dimensions, and boxes of it without a swizzle, as cuTensorMapEncodeTiled takes them.
struct Boxes { const uint8_t* data; uint64_t size, shape[5]; uint32_t box[5]; };
template <class E> Boxes boxes_of(const E* data, const uint64_t (&shape)[5], const uint32_t (&box)[5]) {
  Boxes map{reinterpret_cast<const uint8_t*>(data), sizeof(E), {}, {}};
  bool fits = reinterpret_cast<uintptr_t>(data) % 16 == 0 && shape[0] * sizeof(E) % 16 == 0 && box[0] * sizeof(E) % 16 == 0;
  for (int i = 0; i < 5; ++i) {
    map.shape[i] = shape[i], map.box[i] = box[i];
    fits &= shape[i] >= 1 && shape[i] <= uint64_t(1) << 32 && box[i] >= 1 && box[i] <= 256;
  }
  if (!fits) std::fprintf(stderr, "no tensor map is like this\n"), std::abort();
  return map;
}
inline void load(const Boxes& map, uint8_t* to, uint64_t* bar, const int (&at)[5]) {
  if ((to - ring) % 128) std::fprintf(stderr, "a box is not aligned\n"), std::abort();
  uint32_t count = 1;
  for (uint32_t side : map.box) count *= side;
  bring(bar, count * map.size, [=, at = std::to_array(at)] {
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t left = i, place = 0, step = 1;
      bool real = true;
      for (int n = 0; n < 5; left /= map.box[n], step *= map.shape[n], ++n) {
        const int64_t x = at[n] + int64_t(left % map.box[n]);
        real &= x >= 0 && uint64_t(x) < map.shape[n], place += x * step;
      }
      if (real) std::memcpy(to + i * map.size, map.data + place * map.size, map.size);
      else std::memset(to + i * map.size, 0, map.size);
    }
  });
}
inline void load(const void* from, uint8_t* to, uint64_t* bar, uint32_t bytes) {
  if (bytes % 16 || reinterpret_cast<uintptr_t>(from) % 16 || (to - ring) % 16) std::fprintf(stderr, "bytes are not aligned\n"), std::abort();
  bring(bar, bytes, [=] { std::memcpy(to, from, bytes); });
}
inline void meet(int group) {
  static std::map<int, Team::Barrier> groups;
  groups.try_emplace(group, Team::Barrier{128}).first->second.arrive_and_wait();
}
// Words that blocks of a cooperative launch write and look at, and the barrier of a whole block.
inline uint4 look(const uint4* p) { return *p; }
inline void show(uint32_t* p, uint32_t v) { *p = v, idle = 0; }
inline void pause(uint32_t) { team->pause(); }
inline void meet() { team->all.arrive_and_wait(); }
template <class T> void hold(T&) {}
inline void few_registers() {}
inline void many_registers() {}
inline void fence() {}
template <int LEFT> void settle() {}
// With a swizzle: an address / 16 and bit 62; without: the fields of the PTX ISA, the address counted from the block's tiles.
inline uint64_t descriptor(const uint8_t* tile) { return reinterpret_cast<uint64_t>(tile) >> 4 | uint64_t(1) << 62; }
inline uint64_t descriptor(const uint8_t* tile, uint32_t across, uint32_t down) {
  if ((tile - ring) % 16 || across % 16 || down % 16) std::fprintf(stderr, "an operand is not aligned\n"), std::abort();
  return uint64_t(tile - ring) >> 4 | uint64_t(across >> 4) << 16 | uint64_t(down >> 4) << 32;
}
inline const void* operand_at(uint64_t descriptor, int row, int byte) {
  if (descriptor >> 62 == 1) return reinterpret_cast<const void*>(swizzled((descriptor << 4) + row * 128 + byte));
  const auto field = [=](int bit) { return int64_t(descriptor >> bit & 0x3FFF) * 16; };
  return ring + field(0) + row / 8 * field(32) + row % 8 * 16 + byte / 16 * field(16) + byte % 16;
}
template <class E> float term_of(uint64_t descriptor, int row, int k) {
  E term;
  std::memcpy(&term, operand_at(descriptor, row, k * sizeof(E)), sizeof(E));
  if constexpr (sizeof(E) == 4) return __uint_as_float(reinterpret_cast<const uint32_t&>(term) & 0xFFFFE000);
  else return static_cast<float>(term);
}
template <class E, int COUNT> void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b, int adds) {
  for (int i = 0; i < COUNT; ++i) {
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    double exact = adds ? d[i] : 0.0f;
    for (int k = 0; k < 32 / int(sizeof(E)); ++k) exact += double(term_of<E>(a, row, k)) * term_of<E>(b, col, k);
    d[i] = float(exact);
  }
}

template <class E, int COUNT> void wgmma(int32_t (&d)[COUNT], uint64_t a, uint64_t b, int adds) {
  float exact[COUNT];
  for (float& x : exact) x = 0.0f;
  wgmma<E>(exact, a, b, 0);  // 32 products of two bytes are exact in float
  for (int i = 0; i < COUNT; ++i) d[i] = (adds ? d[i] : 0) + static_cast<int32_t>(exact[i]);
}

// The same of a first operand that a warp keeps in registers, 16 rows of 16 terms.
template <class E, int COUNT> void wgmma(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, int adds) {
  const int lane = threadIdx.x % 32, first = threadIdx.x - lane;
  auto& warp = team->warps[threadIdx.x / 32];
  std::memcpy(registers[threadIdx.x].a, a, 16);
  warp.arrive_and_wait();
  for (int i = 0; i < COUNT; ++i) {
    const int row = lane / 4, down = i / 2 % 2, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double exact = adds ? d[i] : 0.0f;
    for (int k = 0; k < 16; ++k) {
      const uint32_t word = registers[first + row * 4 + k / 2 % 4].a[down + k / 8 * 2];
      const float x = std::is_same_v<E, __half> ? float16_of(word, k % 2) : __uint_as_float(k % 2 ? word & 0xFFFF0000u : word << 16);
      exact += double(x) * term_of<E>(b, col, k);
    }
    d[i] = float(exact);
  }
  warp.arrive_and_wait();
}
inline float exp2(float x) { return std::exp2(x); }
inline void publish() {}

}  // namespace ptx

#define __grid_constant__
