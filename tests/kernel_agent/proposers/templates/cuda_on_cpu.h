// CUDA C++ on the CPU, a block's threads as coroutines of one thread that change places at barriers: slow, and exact enough to check
// indices, masks and reductions without a GPU.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim3_ { unsigned x = 0; };
inline dim3_ threadIdx, blockIdx, gridDim, blockDim;
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };

template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
inline uint32_t __float_as_uint(float x) { uint32_t i; std::memcpy(&i, &x, 4); return i; }
inline uint32_t atomicMax(uint32_t* at, uint32_t x) {
  const uint32_t before = *at;
  *at = before > x ? before : x;
  return before;
}
inline unsigned long long atomicMax(unsigned long long* at, unsigned long long x) {
  auto old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (old < x && !__atomic_compare_exchange_n(at, &old, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return old;
}
inline int cudaMemsetAsync(void* at, int value, size_t bytes, void*) { std::memset(at, value, bytes); return 0; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fdividef(float x, float y) { return y > 0x1p126f ? 0.0f : x / y; }

using __half = _Float16;
inline float __half2float(__half x) { return float(x); }
inline __half __float2half_rn(float x) { return __half(x); }
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) {
    uint32_t i; std::memcpy(&i, &x, 4);
    bits = x != x ? uint16_t(0x7FC0) : uint16_t((i + 0x7FFF + (i >> 16 & 1)) >> 16);
  }
  explicit operator float() const { uint32_t i = uint32_t(bits) << 16; float f; std::memcpy(&f, &i, 4); return f; }
};
inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }

// A block: its coroutines, of which one runs until it waits; turns go round.
struct Team {
  struct One { ucontext_t context; bool done = false; };
  struct Barrier {
    int all, arrived = 0;
    unsigned phase = 0;
    void arrive_and_wait();
  };
  static constexpr size_t STACK = 128 << 10;

  explicit Team(int n) : all{n}, values(n), ones(n) {
    for (int at = 0; at < n; at += 32) warps.push_back({n - at < 32 ? n - at : 32});
  }
  void run(const std::function<void()>& kernel);
  // Lets the others run until `ready` may have changed; a block in which nobody moves any more hangs, and is ended.
  template <class Ready> void wait(Ready ready) {
    for (idle = 0; !ready(); ++idle) {
      if (idle > 4 * ones.size()) std::fprintf(stderr, "the block hangs\n"), std::abort();
      const unsigned me = threadIdx.x;
      swapcontext(&ones[me].context, &main);
    }
    idle = 0;
  }

  Barrier all;
  std::vector<double> values;
  std::vector<Barrier> warps;
  std::vector<One> ones;
  const std::function<void()>* kernel = nullptr;
  ucontext_t main;
  size_t idle = 0;
};
inline Team* team;

inline void Team::Barrier::arrive_and_wait() {
  if (++arrived == all) {
    arrived = 0, ++phase, team->idle = 0;
    return;
  }
  const unsigned mine = phase;
  team->wait([&] { return phase != mine; });
}

inline void Team::run(const std::function<void()>& body) {
  kernel = &body;
  static std::vector<std::unique_ptr<char[]>> stacks;  // of all blocks, one after the other
  while (stacks.size() < ones.size()) stacks.emplace_back(new char[STACK]);
  for (unsigned t = 0; t < ones.size(); ++t) {
    One& one = ones[t];
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = stacks[t].get(), one.context.uc_stack.ss_size = STACK, one.context.uc_link = &main;
    makecontext(&one.context, +[] { (*team->kernel)(), team->ones[threadIdx.x].done = true, team->idle = 0; }, 0);
  }
  for (bool left = true; left;) {
    left = false;
    for (unsigned t = 0; t < ones.size(); ++t) {
      if (ones[t].done) continue;
      left = true, threadIdx.x = t;
      swapcontext(&main, &ones[t].context);
    }
  }
}

inline void __syncthreads() { team->all.arrive_and_wait(); }
inline void __syncwarp() { team->warps[threadIdx.x / 32].arrive_and_wait(); }
template <class T> T shuffled(T x, int from) {
  auto& warp = team->warps[threadIdx.x / 32];
  team->values[threadIdx.x] = static_cast<double>(x);
  warp.arrive_and_wait();
  const T other = static_cast<T>(team->values[threadIdx.x / 32 * 32 + from]);
  warp.arrive_and_wait();
  return other;
}
template <class T> T __shfl_xor_sync(unsigned, T x, int d) { return shuffled(x, static_cast<int>(threadIdx.x % 32) ^ d); }
template <class T> T __shfl_sync(unsigned, T x, int from) { return shuffled(x, from); }
template <class T> T __shfl_up_sync(unsigned, T x, int d) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return shuffled(x, lane < d ? lane : lane - d);
}

using cudaStream_t = void*;
using cudaError_t = int;
constexpr int cudaSuccess = 0;
constexpr int cudaDevAttrMultiProcessorCount = 0;
inline int cudaSetDevice(int) { return 0; }
inline int cudaGetLastError() { return 0; }
inline const char* cudaGetErrorString(int) { return ""; }
template <class F> int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, F, int, int) { *n = 1; return 0; }
inline int cudaDeviceGetAttribute(int* n, int, int) { *n = 2; return 0; }

template <class F> void cpu_launch(unsigned blocks, unsigned threads, F kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned b = 0; b < blocks; ++b) {
    Team now(static_cast<int>(threads));
    team = &now, blockIdx.x = b;
    now.run(kernel);
  }
}

#include "tensor_cores_on_cpu.h"
