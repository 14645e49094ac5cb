// CUDA C++ on the CPU, a block's threads as threads: slow, and exact enough to check indices, masks and reductions without a GPU.
#pragma once
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim3_ { unsigned x = 0; };
inline thread_local dim3_ threadIdx, blockIdx;
inline dim3_ gridDim, blockDim;
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };

template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

using __half = _Float16;
inline float __half2float(__half x) { return float(x); }
inline __half __float2half_rn(float x) { return __half(x); }
struct __nv_bfloat16 { uint16_t bits; };
inline float __bfloat162float(__nv_bfloat16 x) { uint32_t i = uint32_t(x.bits) << 16; float f; std::memcpy(&f, &i, 4); return f; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t i; std::memcpy(&i, &x, 4);
  return {x != x ? uint16_t(0x7FC0) : uint16_t((i + 0x7FFF + (i >> 16 & 1)) >> 16)};
}

struct Team {
  explicit Team(int n) : all(n), values(n) {
    for (int at = 0; at < n; at += 32) warps.push_back(std::make_unique<std::barrier<>>(n - at < 32 ? n - at : 32));
  }
  std::barrier<> all;
  std::vector<float> values;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
};
inline Team* team;

inline void __syncthreads() { team->all.arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float x, int d) {
  auto& warp = *team->warps[threadIdx.x / 32];
  team->values[threadIdx.x] = x;
  warp.arrive_and_wait();
  const float other = team->values[threadIdx.x ^ d];
  warp.arrive_and_wait();
  return other;
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
    team = &now;
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t) running.emplace_back([=] { threadIdx.x = t; blockIdx.x = b; kernel(); });
    for (auto& one : running) one.join();
  }
}

#include "tensor_cores_on_cpu.h"
