/* ---
id: kernels/gemm/level_01_cuda
title: A ring of TMA, mbarriers, setmaxnreg and wgmma
archs: [sm_90]
families: [gemm]
bottlenecks: [tensor]
languages: [cuda]
--- */
// Producer and consumer warpgroups, wgmma m64n128k16: out (float, M x N) = a (bfloat16, M x K) times b (bfloat16, N x K) transposed. M and N multiples of 128, K of 64.
#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int TILE = 128, DEPTH = 64, STAGES = 4;        // 128 x 128 outputs a block, 64 terms a stage
constexpr uint32_t SIDE = TILE * DEPTH * 2;              // bytes of one operand's stage: rows of 128 bytes
constexpr uint32_t SHARED = STAGES * 2 * SIDE + 1024;    // and room to begin at a multiple of 1024
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;

__device__ __forceinline__ uint32_t smem(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void init(uint64_t* bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(bar)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(bar)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem(bar)) : "memory");
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}

__device__ __forceinline__ void load(const CUtensorMap& map, uint32_t to, uint64_t* bar, int k, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(k), "r"(row), "r"(smem(bar)) : "memory");
}

// K-major, 128-byte swizzle: start / 16, leading offset unused, stride 1024 / 16 between groups of eight rows.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return (address & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

#define F8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
// d = a b + (adds ? d : 0): the predicate spares zeroing d. The immediates are signs of a and b, then their transposes.
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0; }"
      : F8(0), F8(8), F8(16), F8(24), F8(32), F8(40), F8(48), F8(56)
      : "l"(a), "l"(b), "r"(adds));
}

__global__ void __launch_bounds__(THREADS, 1)
gemm_ring(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* out, int n, int steps) {
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  const uint32_t ring = (smem(raw) + 1023) / 1024 * 1024;
  const int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE, group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(&full[s], 1), init(&empty[s], CONSUMERS * 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (group == 0) {  // the producer: one thread works, the whole warpgroup gives its registers away
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 0) return;
    for (int i = 0; i < steps; ++i) {
      const int s = i % STAGES;
      wait(&empty[s], (i / STAGES & 1) ^ 1);  // parity 1 of a fresh barrier is over: the first round does not wait
      expect(&full[s], 2 * SIDE);
      load(a, ring + s * 2 * SIDE, &full[s], i * DEPTH, m0);
      load(b, ring + s * 2 * SIDE + SIDE, &full[s], i * DEPTH, n0);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, half = group - 1;
  float d[64];
  for (int i = 0; i < steps; ++i) {
    const int s = i % STAGES;
    wait(&full[s], i / STAGES & 1);
    const uint64_t da = descriptor(ring + s * 2 * SIDE + half * (SIDE / 2)), db = descriptor(ring + s * 2 * SIDE + SIDE);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) wgmma(d, da + 2 * k, db + 2 * k, i + k);  // 16 terms are 32 bytes: 2 in a descriptor
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // the step before is done, and its stage free
    if (i > 0 && lane == 0) arrive(&empty[(i - 1) % STAGES]);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const size_t row = m0 + half * 64 + warp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    float* to = out + row * n + n0 + j * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(d[4 * j], d[4 * j + 1]);
    *reinterpret_cast<float2*>(to + size_t(8) * n) = make_float2(d[4 * j + 2], d[4 * j + 3]);
  }
}

// Boxes of 128 rows x 64 terms of a row-major bfloat16 matrix.
CUtensorMap map_of(const void* data, uint64_t rows, uint64_t cols) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  TVM_FFI_ICHECK(found == cudaDriverEntryPointSuccess) << "the driver has no tensor maps";
  CUtensorMap map;
  const cuuint64_t shape[2] = {cols, rows}, stride[1] = {cols * 2};
  const cuuint32_t box[2] = {DEPTH, TILE}, step[2] = {1, 1};
  const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), shape, stride, box, step,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(made == CUDA_SUCCESS) << "a tensor map cannot be made: " << static_cast<int>(made);
  return map;
}

void launch(const void* a, const void* b, float* out, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  cudaFuncSetAttribute(gemm_ring, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  const dim3 grid(n / TILE, m / TILE);
  gemm_ring<<<grid, THREADS, SHARED, stream>>>(map_of(a, m, k), map_of(b, n, k), out, n, k / DEPTH);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}

}  // namespace

void run(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(0);
  TVM_FFI_ICHECK(m % TILE == 0 && n % TILE == 0 && k % DEPTH == 0) << "sizes are no multiples of the tile";
  const DLDevice at = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(at.device_type, at.device_id));
  launch(a.data_ptr(), b.data_ptr(), static_cast<float*>(out.data_ptr()), m, n, k, stream);
}
