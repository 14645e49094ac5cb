/* ---
id: kernels/gemm/level_05_cuda
title: wgmma of N 64, 128 and 256 in bfloat16, float16, e4m3 and int8, with row statistics in registers
archs: [sm_90]
families: [gemm, norm]
bottlenecks: [tensor]
languages: [cuda]
dtypes: [bfloat16, float16, float8, int8]
--- */
// What differs by format: terms of an instruction (16 halves or 32 bytes, 32 bytes either way), accumulators (int for int8), and what
// follows the descriptors: the predicate (0: d is not added), then signs of a and b (not for int8), then transposes (16-bit formats
// alone). A lies without a swizzle, B with one of 128 bytes, so that both descriptors are here. A row's N outputs lie in four lanes, N / 4
// each: its statistics need two shuffles and no shared memory. One warpgroup a block, plain copies: the mechanics, not speed.
// out (float, M x N) = rows of a (M x K) times b (N x K) transposed, each divided by its root mean square.
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace {

constexpr int ROWS = 64, LINE = 128;  // rows a block, bytes of a row and stage

#define R32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define R64 R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define R128 R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95" \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define D8(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define D32(c, i) D8(c, i), D8(c, i + 8), D8(c, i + 16), D8(c, i + 24)
#define D64(c, i) D32(c, i), D32(c, i + 32)
#define D128(c, i) D64(c, i), D64(c, i + 64)

// C: constraint of an accumulator; A, B, P: the operands behind the accumulators; TAIL: what follows the predicate.
#define WGMMA(N, SHAPE, REGISTERS, OPERANDS, C, A, B, P, TAIL)                                                       \
  __device__ __forceinline__ void multiply(ACCUMULATOR (&d)[N / 2], uint64_t a, uint64_t b, int adds, FORMAT*) {     \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " P ", 0;\n"                                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N SHAPE " {" REGISTERS "}, " A ", " B ", p" TAIL "; }"         \
                 : OPERANDS(C, 0) : "l"(a), "l"(b), "r"(adds));                                                      \
  }
#define WIDTHS(SHAPE, C, TAIL)                                  \
  WGMMA(64, SHAPE, R32, D32, C, "%32", "%33", "%34", TAIL)      \
  WGMMA(128, SHAPE, R64, D64, C, "%64", "%65", "%66", TAIL)     \
  WGMMA(256, SHAPE, R128, D128, C, "%128", "%129", "%130", TAIL)

#define ACCUMULATOR float
#define FORMAT __nv_bfloat16
WIDTHS("k16.f32.bf16.bf16", "+f", ", 1, 1, 0, 0")
#undef FORMAT
#define FORMAT __half
WIDTHS("k16.f32.f16.f16", "+f", ", 1, 1, 0, 0")
#undef FORMAT
#define FORMAT __nv_fp8_e4m3
WIDTHS("k32.f32.e4m3.e4m3", "+f", ", 1, 1")
#undef FORMAT
#undef ACCUMULATOR
#define ACCUMULATOR int32_t
#define FORMAT int8_t
WIDTHS("k32.s32.s8.s8", "+r", "")
#undef FORMAT
#undef ACCUMULATOR

template <typename T> struct Sum { using type = float; };
template <> struct Sum<int8_t> { using type = int32_t; };

__device__ __forceinline__ uint64_t start(const void* p) { return (__cvta_generic_to_shared(p) & 0x3FFFF) >> 4; }

// 128-byte swizzle: rows of 128 bytes, eight of them 1024 bytes, chunk c of row r at c ^ r % 8; 32 bytes on in K are 2 more in the start.
__device__ __forceinline__ uint64_t swizzled(const void* tile) { return start(tile) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62; }

// No swizzle: eight rows of one 16-byte chunk are 128 bytes in a piece. The leading offset leads to the next chunk in K, the stride offset
// to the next eight rows; 32 bytes on in K the start moves by two leading offsets.
constexpr uint32_t NEXT_CHUNK = ROWS / 8 * 128, NEXT_ROWS = 128;
__device__ __forceinline__ uint64_t plain(const void* tile) { return start(tile) | uint64_t(NEXT_CHUNK >> 4) << 16 | uint64_t(NEXT_ROWS >> 4) << 32; }

template <typename T, int N> __global__ void __launch_bounds__(128)
rows_product(const uint4* __restrict__ a, const uint4* __restrict__ b, float* __restrict__ out, int chunks, float scale, float eps) {
  __shared__ __align__(1024) uint4 at[ROWS * LINE / 16], bt[N * LINE / 16];
  const int64_t m0 = int64_t(blockIdx.x) * ROWS;
  typename Sum<T>::type d[N / 2];
  for (int k0 = 0; k0 < chunks; k0 += LINE / 16) {
    for (int i = threadIdx.x; i < ROWS * 8; i += 128) at[i % 8 * (ROWS) + i / 8] = a[(m0 + i / 8) * chunks + k0 + i % 8];
    for (int i = threadIdx.x; i < N * 8; i += 128) bt[i / 8 * 8 + (i % 8 ^ i / 8 % 8)] = b[int64_t(i / 8) * chunks + k0 + i % 8];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < LINE / 32; ++k)
      multiply(d, plain(at) + k * (2 * NEXT_CHUNK >> 4), swizzled(bt) + 2 * k, k0 + k, static_cast<T*>(nullptr));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  // Thread t of the group holds rows 16 (t / 32) + t % 32 / 4 and that plus 8: of eight columns j the pair 2 (t % 4).
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      for (int e = 0; e < 2; ++e) squares += float(d[4 * j + 2 * half + e]) * float(d[4 * j + 2 * half + e]);
    squares += __shfl_xor_sync(~0u, squares, 1);  // the four lanes of a row
    squares += __shfl_xor_sync(~0u, squares, 2);
    const float factor = scale / sqrtf(squares * scale * scale / N + eps);
    float* to = out + (m0 + row + 8 * half) * N + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
      *reinterpret_cast<float2*>(to + j * 8) = make_float2(float(d[4 * j + 2 * half]) * factor, float(d[4 * j + 2 * half + 1]) * factor);
  }
}

template <typename T> void launch(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out, double scale, double eps, cudaStream_t stream) {
  const int64_t n = b.size(0), bytes = a.size(1) * sizeof(T);
  TVM_FFI_ICHECK(a.size(0) % ROWS == 0 && bytes % LINE == 0) << "sizes are no multiples of the tile";
  const auto go = [&](auto kernel) {
    kernel<<<a.size(0) / ROWS, 128, 0, stream>>>(static_cast<const uint4*>(a.data_ptr()), static_cast<const uint4*>(b.data_ptr()),
                                                 static_cast<float*>(out.data_ptr()), bytes / 16, scale, eps);
  };
  if (n == 64) go(rows_product<T, 64>);
  else if (n == 128) go(rows_product<T, 128>);
  else if (n == 256) go(rows_product<T, 256>);
  else TVM_FFI_ICHECK(false) << "N is 64, 128 or 256";
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the kernel was not launched";
}

}  // namespace

void run(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView out, double scale, double eps) {
  const DLDevice at = out.device();
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(at.device_type, at.device_id));
  const auto kind = a.dtype();
  if (kind.code == kDLBfloat) launch<__nv_bfloat16>(a, b, out, scale, eps, stream);
  else if (kind.code == kDLFloat) launch<__half>(a, b, out, scale, eps, stream);
  else if (kind.code == kDLInt) launch<int8_t>(a, b, out, scale, eps, stream);
  else launch<__nv_fp8_e4m3>(a, b, out, scale, eps, stream);
}
