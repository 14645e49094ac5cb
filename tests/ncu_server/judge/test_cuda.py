"""The cuda target, on a machine that has a device (`-m gpu`)."""

import time

import pytest
import torch

from benchmarks.diseases import DISEASES
from ncu_server.worker.timing.devices import SURE, Calls, Cuda
from tests.support.cuda_kernels import KERNEL, LIGHT, status
from tests.support.edits import edit
from tests.support.measuring import SCALE_ADD, Server

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.gpu]

TORCH = (
    '''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = r"""'''
    + KERNEL
    + '''
torch::Tensor run(torch::Tensor x, torch::Tensor y, torch::Tensor b, double s) {
  auto o = torch::empty_like(x);
  kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), b.data_ptr<float>(),
                                           o.data_ptr<float>(), (float)s, x.numel(), b.numel());
  return o;
}
"""
built = load_inline("scale_add", "torch::Tensor run(torch::Tensor, torch::Tensor, torch::Tensor, double);", SOURCE,
                    functions=["run"])

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        return built.run(x, y, self.bias, self.scale)
'''
)


@pytest.mark.parametrize("candidate", [LIGHT, TORCH], ids=["tvm_ffi", "torch"])
async def test_both_forms_of_load_inline_pass(server: Server, candidate: str) -> None:
    assert await status(server, candidate) == ("passed", "")


SPY = """
        import os, socket, subprocess
        for code in ("open('/etc/shadow')", "open('/tmp/left', 'w')", "subprocess.run(['true'])", "os.fork()",
                     "open('/proc/sys/kernel/core_pattern', 'r+')", "os.kill(os.getppid(), 9)",
                     "socket.socket().connect(('127.0.0.1', 1))", "os.listdir(os.path.dirname(os.getcwd()))"):
            try:
                exec(code)
            except OSError:
                continue
            raise AssertionError(code)
        return out"""


@pytest.mark.parametrize("change", [None, ("        return out", SPY.lstrip("\n"))], ids=["honest", "tries them"])
async def test_cuda_runs_behind_every_wall_of_this_machine(server: Server, change: tuple[str, str] | None) -> None:
    given = {
        "candidate": edit(LIGHT, *change) if change else LIGHT,
        "problem": SCALE_ADD,
        "target": "cuda",
        "timeout_s": 240,
    }
    result = (await server.call("evaluate_kernel", **given)).structured_content
    assert result is not None
    assert result["status"] == "passed", result["log"]
    walls = (await server.call("check_environment")).structured_content
    assert walls is not None
    up = [w["name"] for w in walls["walls"] if w["stands"] and "cuda" in w["targets"]]
    assert result["provenance"]["walls"].partition("; not: ")[0].split(", ") == up
    assert "system calls" in up


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("if (i < n)", "if (i < n / 2)"), "wrong"),
        (("+ 255) / 256, 256, 0, stream", "+ 255) / 256, 4096, 0, stream"), "run_error"),
        (("if (i < n) o[i]", "o[i + (1ll << 40)]"), "run_error"),
        (("if (i < n)", "while (true)"), "timeout"),
        (("int64_t i =", "int64_t i"), "build_error"),
    ],
    ids=["half unwritten", "launch fails", "illegal address", "endless", "syntax"],
)
async def test_a_fault_on_the_device_is_the_candidate_s_and_the_next_one_passes(
    server: Server, change: tuple[str, str], expected: str
) -> None:
    found, _ = await status(server, edit(LIGHT, *change), timeout_s=15)
    assert found == expected
    assert (await status(server, LIGHT))[0] == "passed"


TWICE = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return EXPRESSION

def get_inputs():
    return [INPUTS]

def get_init_inputs():
    return []
"""
TWICE_OF = r'''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
using T = TYPE;
__global__ void kernel(const T* x, T* o, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) o[i] = T(WIDE(x[i]) * WIDE(2));
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o, int64_t n, int64_t stream) {
  kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const T*)x.data_ptr(), (T*)o.data_ptr(), n);
}
"""
built = tvm_ffi.cpp.load_inline("twice", cuda_sources=SOURCE, functions=["run"])

class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        a, b = x.view(torch.uint8), o.view(torch.uint8)
        built.run(a, b, COUNT * x.numel(), torch.cuda.current_stream().cuda_stream)
        return o
'''
FLOATS = "torch.randn(1024, 512).to(torch.{})"


@pytest.mark.parametrize(
    ("dtype", "inputs", "kind", "wide", "count"),
    [
        ("complex64", "torch.randn(1024, 512, dtype=torch.complex64)", "float", "float", 2),
        ("float8_e4m3fn", FLOATS, "__nv_fp8_e4m3", "float", 1),
        ("float8_e5m2", FLOATS, "__nv_fp8_e5m2", "float", 1),
        ("bfloat16", FLOATS, "__nv_bfloat16", "float", 1),
        ("float64", FLOATS, "double", "double", 1),
        ("int32", "torch.randint(-99, 99, (1024, 512)).int()", "int32_t", "int32_t", 1),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 16 else "",
)
async def test_tensors_of_every_kind_are_judged(
    server: Server, dtype: str, inputs: str, kind: str, wide: str, count: int
) -> None:
    expression = "(x.float() * 2).to(x.dtype)" if "float8" in dtype else "x * 2"
    problem = edit(edit(TWICE, "EXPRESSION", expression), "INPUTS", inputs.format(dtype))
    candidate = edit(edit(edit(TWICE_OF, "TYPE", kind), "WIDE", wide, times=2), "COUNT", str(count))
    answer = await server.call("evaluate_kernel", candidate=candidate, problem=problem, target="cuda")
    assert answer.structured_content is not None, answer.content
    assert answer.structured_content["status"] == "passed", answer.structured_content["log"]


async def test_a_description_names_the_device_and_its_copy_bandwidth(server: Server) -> None:
    answer = await server.call("describe_problem", problem=SCALE_ADD, target="cuda")
    assert answer.structured_content is not None, answer.content
    device = answer.structured_content["device"]
    assert device["arch"].startswith("sm_")
    assert device["copy_gbps"] > 50
    peaks, capability = device["peaks"], torch.cuda.get_device_capability()
    assert peaks["l2_gbps"] > 1.2 * peaks["copy_gbps"]
    assert capability < (7, 5) or peaks["int8_tflops"] > peaks["fp32_tflops"]
    assert capability < (8, 9) or peaks["fp8_tflops"] > 1.2 * peaks["bf16_tflops"]
    assert peaks["read_gbps"] > 0.95 * peaks["copy_gbps"]
    reading = max(peaks["read_gbps"], peaks["copy_gbps"])
    assert answer.structured_content["limit_rate"].startswith(f"{reading:,.0f} GB/s of reading")
    assert [b["name"] for b in answer.structured_content["baselines"]][:2] == ["eager", "compile"]


async def test_a_products_limit_is_that_of_the_fastest_way_that_is_inside(server: Server) -> None:
    one = next(disease for disease in DISEASES if disease.name == "tensor_idle")
    answer = await server.call("describe_problem", problem=one.problem, target="cuda", baselines=["eager"])
    judged = await server.call("evaluate_kernel", candidate=one.candidate, problem=one.problem, target="cuda")
    known, found = answer.structured_content, judged.structured_content
    assert known is not None and found is not None and found["status"] == "passed", judged.content
    inside = [way["limit_us"] for way in known["ways"] if way["fits"] == "inside" and way["limit_us"]]
    assert found["limit_us"] == pytest.approx(known["limit_us"]) and known["limit_us"] == min(inside)
    assert found["limit_rate"] == known["limit_rate"]


async def test_a_slow_launch_does_not_show_where_calls_are_compared() -> None:
    device, x = Cuda(), torch.ones(8, device="cuda")

    def call(i: int) -> torch.Tensor:
        if i == 1:
            time.sleep(5e-4)  # the launch that is slow
        return x + 1

    device.clock(Calls(call, 1))
    assert max(device.clock(Calls(call, 4, lead=SURE))) < 100
