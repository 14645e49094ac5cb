"""Kernels that are each made to have one disease, with the problem that each is for and what a digest should say of it.

None is a good kernel but the first; what is wrong is marked with `// here` where a line is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass

PROBLEM = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, {names}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

CANDIDATE = '''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
{kernel}
void run({parameters}) {{
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, out.device().device_id));
  {launch}
}}
"""
built = tvm_ffi.cpp.load_inline("{name}", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def forward(self, {names}):
        out = torch.empty({shape}, device=x.device)
        built.run({names}, out)
        return out
'''


@dataclass(frozen=True, slots=True)
class Disease:
    """One kernel. `trouble` is None where there is none; `bounds` are those that a digest may give."""

    name: str
    trouble: str | None
    bounds: tuple[str, ...]
    result: str
    inputs: str
    shape: str
    kernel: str
    launch: str
    names: tuple[str, ...] = ("x",)

    @property
    def problem(self) -> str:
        return PROBLEM.format(names=", ".join(self.names), result=self.result, inputs=self.inputs)

    @property
    def candidate(self) -> str:
        return CANDIDATE.format(
            kernel=self.kernel.strip(),
            parameters=", ".join(f"tvm::ffi::TensorView {name}" for name in (*self.names, "out")),
            launch=self.launch,
            name=self.name,
            names=", ".join(self.names),
            shape=self.shape,
        )

    @property
    def line(self) -> int | None:
        """The line of the candidate that is to blame."""
        marked = [n for n, text in enumerate(self.candidate.splitlines(), 1) if text.endswith("// here")]
        return marked[0] if marked else None


def _pointer(name: str) -> str:
    return f"static_cast<{'' if name == 'out' else 'const '}float*>({name}.data_ptr())"


X, Y, OUT = _pointer("x"), _pointer("y"), _pointer("out")

DISEASES = (
    Disease(
        "healthy",
        None,
        ("near the limit", "memory"),
        "x * 2 + 1",
        "torch.randn(16384, 4096)",
        "16384, 4096",
        """
__global__ void scale(const float4* x, float4* out, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) { float4 v = x[i]; out[i] = make_float4(v.x * 2 + 1, v.y * 2 + 1, v.z * 2 + 1, v.w * 2 + 1); }
}""",
        f"long n = x.numel() / 4; scale<<<(n + 255) / 256, 256, 0, stream>>>("
        f"reinterpret_cast<const float4*>({X}), reinterpret_cast<float4*>({OUT}), n);",
    ),
    Disease(
        "uncoalesced",
        "uncoalesced",
        ("memory", "latency"),
        "x.t().contiguous()",
        "torch.randn(8192, 8192)",
        "8192, 8192",
        """
__global__ void transpose(const float* x, float* out, long side) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  float value = x[(i % side) * side + i / side];  // here
  out[i] = value;
}""",
        f"long side = x.size(0); transpose<<<side * side / 256, 256, 0, stream>>>({X}, {OUT}, side);",
    ),
    Disease(
        "bank_conflicts",
        "bank_conflicts",
        ("memory", "latency", "near the limit"),
        "x.sum(-1)",
        "torch.randn(65536, 32, 32)",
        "65536, 32",
        """
__global__ void rows(const float* x, float* out) {
  __shared__ float tile[8 * 1024];
  float* mine = tile + threadIdx.x / 32 * 1024;
  int lane = threadIdx.x % 32;
  long base = (blockIdx.x * 8L + threadIdx.x / 32) * 1024;
  for (int k = 0; k < 32; ++k) mine[k * 32 + lane] = x[base + k * 32 + lane];
  __syncwarp();
  float sum = 0;
  #pragma unroll 1
  for (int k = 0; k < 32; ++k)
    sum += mine[lane * 32 + k];  // here
  out[base / 32 + lane] = sum;
}""",
        f"rows<<<x.size(0) / 8, 256, 0, stream>>>({X}, {OUT});",
    ),
    Disease(
        "spills",
        "spills",
        ("memory", "latency", "compute"),
        "x.cumsum(0).sum(0)",
        "torch.randn(96, 1 << 18)",
        "1 << 18",
        """
__global__ void __launch_bounds__(1024) mix(const float* x, float* out, long n, int turns) {
  long t = blockIdx.x * 1024L + threadIdx.x;
  float a[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) a[i] = x[i * n + t];
  for (int turn = 0; turn < turns; ++turn) {
    #pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = fmaf(a[i], 0.5f, a[(i + 37) % 96]);
  }
  float sum = 0;
  #pragma unroll
  for (int i = 0; i < 96; ++i) sum += a[i];
  out[t] = sum;
}""",
        f"long n = x.size(1); mix<<<n / 1024, 1024, 0, stream>>>({X}, {OUT}, n, 8);",
    ),
    Disease(
        "low_occupancy",
        "low_occupancy",
        ("latency", "memory", "launch"),
        "x * 0 + 1",
        "torch.rand(4096, 4096)",
        "4096, 4096",
        """
__global__ void chase(const float* x, float* out, long n) {
  __shared__ float room[12000];
  long i = blockIdx.x * 64L + threadIdx.x;
  room[threadIdx.x * 100] = x[i];
  __syncthreads();
  float v = room[(threadIdx.x * 100 + 100) % 6400];
  for (int hop = 0; hop < 16; ++hop) v = x[(long)(v * (n - 1))];
  out[i] = v;
}""",
        f"chase<<<x.numel() / 64, 64, 0, stream>>>({X}, {OUT}, x.numel());",
    ),
    Disease(
        "tensor_idle",
        "tensor_idle",
        ("compute", "memory", "latency", "near the limit"),
        "x @ y",
        "torch.randn(2048, 2048), torch.randn(2048, 2048)",
        "2048, 2048",
        """
__global__ void gemm(const float* x, const float* y, float* out, int n) {
  __shared__ float a[16][65], b[16][64];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int k = 0; k < n; k += 16) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      a[i % 16][i / 16] = x[(row + i / 16) * (long)n + k + i % 16];
      b[i / 64][i % 64] = y[(k + i / 64) * (long)n + column + i % 64];
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      float p[4], q[4];
      for (int u = 0; u < 4; ++u) { p[u] = a[j][ty * 4 + u]; q[u] = b[j][tx * 4 + u]; }
      for (int u = 0; u < 4; ++u) for (int v = 0; v < 4; ++v) sum[u][v] += p[u] * q[v];
    }
    __syncthreads();
  }
  for (int u = 0; u < 4; ++u) for (int v = 0; v < 4; ++v)
    out[(row + ty * 4 + u) * (long)n + column + tx * 4 + v] = sum[u][v];
}""",
        f"int n = x.size(0); gemm<<<dim3(n / 64, n / 64), 256, 0, stream>>>({X}, {Y}, {OUT}, n);",
        ("x", "y"),
    ),
    Disease(
        "small_grid",
        "small_grid",
        ("launch",),
        "x.sum(-1)",
        "torch.randn(4, 65536)",
        "4",
        """
__global__ void row_sum(const float* x, float* out, int n) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 256) sum += x[blockIdx.x * (long)n + i];
  part[threadIdx.x] = sum;
  for (int half = 128; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (!threadIdx.x) out[blockIdx.x] = part[0];
}""",
        f"row_sum<<<x.size(0), 256, 0, stream>>>({X}, {OUT}, x.size(1));",
    ),
)
