"""Whose kernels run on the device, by their names (`-m gpu`)."""

from typing import Any

import pytest

from tests.support.edits import edit
from tests.support.measuring import Server

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.gpu]

PROBLEM = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]

def get_init_inputs():
    return []
"""
EPILOGUE = edit(PROBLEM, "torch.matmul(a, b)", "torch.relu(torch.matmul(a, b)) + 1.5")
SOURCE = r'''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>
__global__ void k_mm(const float* a, const float* b, float* o, int n) {
  __shared__ float s[16][16], t[16][16];
  int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x; float sum = 0.f;
  for (int k = 0; k < n; k += 16) {
    s[threadIdx.y][threadIdx.x] = a[r * (int64_t)n + k + threadIdx.x];
    t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * (int64_t)n + c];
    __syncthreads();
    for (int u = 0; u < 16; ++u) sum += s[threadIdx.y][u] * t[u][threadIdx.x];
    __syncthreads();
  }
  o[r * (int64_t)n + c] = sum;
}
namespace { __global__ void gemm_epilogue(const float* a, float* o, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) o[i] = fmaxf(a[i], 0.f) + 1.5f;
} }
cudaStream_t stream(tvm::ffi::TensorView x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
}
void mm(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView o) {
  int n = a.size(0);
  k_mm<<<dim3(n / 16, n / 16), dim3(16, 16), 0, stream(a)>>>(
      (const float*)a.data_ptr(), (const float*)b.data_ptr(), (float*)o.data_ptr(), n);
}
void epilogue(tvm::ffi::TensorView a, tvm::ffi::TensorView o) {
  int64_t n = o.numel();
  gemm_epilogue<<<(n + 255) / 256, 256, 0, stream(a)>>>((const float*)a.data_ptr(), (float*)o.data_ptr(), n);
}
"""
built = tvm_ffi.cpp.load_inline("mm", cuda_sources=SOURCE, functions=["mm", "epilogue"], extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        BODY
        return out
'''
OWN = "built.mm(a, b, out)"
DECOY = "built.epilogue(a, torch.empty(1, device=a.device)); out = torch.matmul(a, b)"
TWO = "built.epilogue(torch.matmul(a, b), out)"
BOTH = "built.mm(a, b, out); out = torch.relu(out) + 1.5"
COPIES = "built.mm(a.t().contiguous().t().contiguous(), b.clone(), out)"


async def judged(server: Server, body: str, problem: str, size: int, **more: Any) -> dict[str, Any]:
    given = {
        "candidate": edit(SOURCE, "BODY", body),
        "problem": edit(problem, "(N, N)", f"({size}, {size})", times=2),
        "target": "cuda",
    }
    answer = await server.call("evaluate_kernel", **given, **more)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return answer.structured_content


@pytest.mark.parametrize("size", [128, 2048])
@pytest.mark.parametrize("body", [OWN, COPIES], ids=["alone", "with copies"])
async def test_kernels_of_its_own_are_custom(server: Server, body: str, size: int) -> None:
    result = await judged(server, body, PROBLEM, size, rules="strict")
    assert (result["status"], result["provenance"]["label"]) == ("passed", "custom"), result["log"]


@pytest.mark.parametrize("size", [128, 2048])
async def test_a_decoy_beside_torch_is_rejected_at_any_size(server: Server, size: int) -> None:
    result = await judged(server, DECOY, PROBLEM, size)
    assert (result["status"], result["provenance"]["label"]) == ("rejected", "library"), result["provenance"]
    assert "mostly" in result["log"]


@pytest.mark.parametrize("size", [128, 512])
async def test_a_vendor_product_under_an_epilogue_of_its_own_is_hybrid(server: Server, size: int) -> None:
    result = await judged(server, TWO, EPILOGUE, size)
    assert (result["status"], result["provenance"]["label"]) == ("passed", "hybrid"), result["log"]
    assert (await judged(server, TWO, EPILOGUE, size, rules="strict"))["status"] == "rejected"


async def test_a_small_torch_epilogue_after_a_large_kernel_is_custom(server: Server) -> None:
    result = await judged(server, BOTH, EPILOGUE, 2048)
    assert (result["status"], result["provenance"]["label"]) == ("passed", "custom"), result["provenance"]
    assert 0 < result["provenance"]["library_share"] < 0.05


BUFFER = """
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(100))
"""
SEEN = "self.seen.mul_(0.9).add_(1.0)"
KEEPS = edit(
    edit(PROBLEM, "(nn.Module):", f"(nn.Module):{BUFFER}"),
    "return torch.matmul",
    f"{SEEN}\n        return torch.matmul",
)


@pytest.mark.parametrize(
    ("body", "status", "label"),
    [(f"{OWN}; {SEEN}", "passed", "custom"), (f"{DECOY}; {SEEN}", "rejected", "library")],
    ids=["beside a kernel", "beside a decoy"],
)
async def test_a_small_buffer_of_torch_beside_it_is_no_share_of_the_work(
    server: Server, body: str, status: str, label: str
) -> None:
    given = {
        "candidate": edit(edit(SOURCE, "BODY", body), "ModelNew(nn.Module):", f"ModelNew(nn.Module):{BUFFER}"),
        "problem": edit(KEEPS, "(N, N)", "(128, 128)", times=2),
        "target": "cuda",
        "rules": "strict",
    }
    result = (await server.call("evaluate_kernel", **given)).structured_content
    assert result is not None
    assert (result["status"], result["provenance"].get("label")) == (status, label), result["log"]


async def test_a_kernel_built_at_the_first_call_is_custom(server: Server) -> None:
    late = edit(
        edit(SOURCE, "built = tvm_ffi", "import functools\nbuild = functools.cache(lambda: tvm_ffi"), "BODY", OWN
    )
    late = edit(edit(late, 'extra_cuda_cflags=["-O3"])', 'extra_cuda_cflags=["-O3"]))'), "built.mm(", "build().mm(")
    given = {"candidate": late, "problem": edit(PROBLEM, "(N, N)", "(512, 512)", times=2), "target": "cuda"}
    result = (await server.call("evaluate_kernel", **given, rules="strict")).structured_content
    assert result is not None
    assert (result["status"], result["provenance"].get("label")) == ("passed", "custom"), result["log"]
