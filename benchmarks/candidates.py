"""Problems of a few kernel families and many different kernels for them, on cuda and cpu, in both forms of load_inline.

Every problem takes two float32 matrices. Each kernel's body differs from the others of its family in how it walks the
data; a `slip` makes one that compiles and computes something else, a `typo` one that does not compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["light", "torch"]


@dataclass(frozen=True, slots=True)
class Family:
    """An operation: its PyTorch expression, the columns of its output (None: as the input's), its kernels' bodies."""

    name: str
    expression: str
    columns: int | None
    each: str = ""  # of elements a and b
    start: str = ""  # of a row's accumulator
    gather: str = ""  # from accumulator s and elements a and b
    finish: str = ""  # a row's result, or an element's from accumulator s


FAMILIES = (
    Family("scale_add", "x * 1.5 + y", None, each="a * 1.5f + b"),
    Family("relu_chain", "torch.relu(x - y) * 0.5 + torch.relu(y)", None,
           each="fmaxf(a - b, 0.f) * .5f + fmaxf(b, 0.f)"),
    Family("row_sum", "(x * y).sum(-1, keepdim=True)", 1, start="0.f", gather="s + a * b", finish="s"),
    Family("row_norm", "x / (x - y).square().mean(-1, keepdim=True).add(1e-5).sqrt()", None,
           start="0.f", gather="s + (a - b) * (a - b)", finish="a / sqrtf(s / cols + 1e-5f)"),
)  # fmt: skip


def problem(family: Family, rows: int, cols: int) -> str:
    """KernelBench's form."""
    return f"""import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return {family.expression}


def get_inputs():
    return [torch.randn({rows}, {cols}), torch.randn({rows}, {cols})]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a candidate, and the status that it deserves."""

    status: str
    old: str
    new: str


SLIP = Flaw("wrong", "i < last;", "i + 1 < last;")
TYPO = Flaw("build_error", "i < last;", "i < lost;")


def candidate(family: Family, target: str, form: Form, variant: int, flaw: Flaw | None = None) -> str:
    """A module that defines `ModelNew`; variants from 0 differ in block size, unrolling and walk."""
    core = (_cuda if target == "cuda" else _cpp)(family, variant)
    if flaw:
        core = core.replace(flaw.old, flaw.new)
    name = f"{family.name}_{variant}"
    columns = family.columns or 0
    return (_light if form == "light" else _torch)(name, target, core, columns)


def _cuda(family: Family, variant: int) -> str:
    threads, unroll = (128, 256, 512, 1024)[variant % 4], (1, 2, 4)[variant // 4 % 3]
    walk = f"#pragma unroll {unroll}\n  for (long i = first; i < last; i += step)"
    if family.each:
        return f"""
__global__ void {family.name}_kernel(const float* x, const float* y, float* o, long last) {{
  const long first = blockIdx.x * (long)blockDim.x + threadIdx.x, step = (long)gridDim.x * blockDim.x;
  {walk} {{ const float a = x[i], b = y[i]; o[i] = {family.each}; }}
}}
static void launch(const float* x, const float* y, float* o, long rows, long cols, cudaStream_t stream) {{
  const long n = rows * cols, blocks = (n + {threads * unroll} - 1) / {threads * unroll};
  {family.name}_kernel<<<(unsigned)blocks, {threads}, 0, stream>>>(x, y, o, n);
}}
"""
    store = (
        f"if (threadIdx.x == 0) o[row] = {family.finish};"
        if family.columns
        else "for (long i = first; i < last; i += step) "
        f"{{ const float a = x[i]; o[row * cols + i] = {family.finish}; }}"
    )
    return f"""
__global__ void {family.name}_kernel(const float* x, const float* y, float* o, long cols) {{
  __shared__ float part[32];
  const long row = blockIdx.x, first = threadIdx.x, step = {threads}, last = cols;
  x += row * cols; y += row * cols;
  float s = {family.start};
  {walk} {{ const float a = x[i], b = y[i]; s = {family.gather}; }}
  for (int w = 16; w; w /= 2) s += __shfl_xor_sync(0xffffffffu, s, w);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0.f;
  for (int w = 0; w < {threads // 32}; ++w) s += part[w];
  {store}
}}
static void launch(const float* x, const float* y, float* o, long rows, long cols, cudaStream_t stream) {{
  {family.name}_kernel<<<(unsigned)rows, {threads}, 0, stream>>>(x, y, o, cols);
}}
"""


def _cpp(family: Family, variant: int) -> str:
    tile = 64 << variant
    if family.each:
        body = f"""
  for (long t = 0; t < rows * cols; t += {tile}) {{
    const long last = std::min(t + {tile}L, rows * cols);
    for (long i = t; i < last; ++i) {{ const float a = x[i], b = y[i]; o[i] = {family.each}; }}
  }}"""
    else:
        store = (
            f"o[row] = {family.finish};"
            if family.columns
            else f"for (long i = 0; i < cols; ++i) {{ const float a = p[i]; o[row * cols + i] = {family.finish}; }}"
        )
        lanes = 2 << variant % 4
        body = f"""
  for (long row = 0; row < rows; ++row) {{
    const float *p = x + row * cols, *q = y + row * cols;
    float part[{lanes}] = {{}};
    const long last = cols;
    for (long i = 0; i < last; ++i) {{
      const float a = p[i], b = q[i];
      float& s = part[i % {lanes}];
      s = {family.gather};
    }}
    float s = {family.start};
    for (float each : part) s += each;
    {store}
  }}"""
    return f"""
#include <algorithm>
#include <cmath>
static void launch(const float* x, const float* y, float* o, long rows, long cols) {{{body}
}}
"""


def _light(name: str, target: str, core: str, columns: int) -> str:
    kind, stream, flags = "cpp", "", 'extra_cflags=["-O3"]'
    if target == "cuda":
        kind, flags = "cuda", 'extra_cuda_cflags=["-O3"]'
        stream = ", static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id))"
    head = "#include <cuda_runtime.h>" if target == "cuda" else ""
    return f'''import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""{head}{core}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView o) {{
  launch(static_cast<const float*>(x.data_ptr()), static_cast<const float*>(y.data_ptr()),
         static_cast<float*>(o.data_ptr()), x.size(0), x.size(1){stream});
}}
"""
built = tvm_ffi.cpp.load_inline("{name}", {kind}_sources=SOURCE, functions=["run"], {flags})


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape[0], {columns or "x.shape[1]"}, device=x.device)
        built.run(x, y, out)
        return out
'''


def _torch(name: str, target: str, core: str, columns: int) -> str:
    stream = ", at::cuda::getCurrentCUDAStream()" if target == "cuda" else ""
    head = "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>" if target == "cuda" else ""
    function = f"""{head}{core}
torch::Tensor run(torch::Tensor x, torch::Tensor y) {{
  TORCH_CHECK(x.is_contiguous() && y.is_contiguous(), "matrices in rows are expected");
  auto out = torch::empty({{x.size(0), {columns or "x.size(1)"}}}, x.options());
  launch(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1){stream});
  return out;
}}
"""
    declared = "torch::Tensor run(torch::Tensor x, torch::Tensor y);"
    sources = "cpp_sources=DECLARED, cuda_sources=SOURCE" if target == "cuda" else "cpp_sources=SOURCE"
    flags = 'extra_cuda_cflags=["-O3"]' if target == "cuda" else 'extra_cflags=["-O3"]'
    return f'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARED = "{declared}"
SOURCE = r"""{function}"""
built = load_inline(name="{name}", {sources}, functions=["run"], {flags})


class ModelNew(nn.Module):
    def forward(self, x, y):
        return built.run(x, y)
'''
