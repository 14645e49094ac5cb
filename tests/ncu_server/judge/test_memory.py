"""The memory that a candidate takes beside the reference's, and when a verdict warns of it."""

import ctypes
import mmap
from collections.abc import Callable

import pytest
import torch

from ncu_server.judge.memory import SLACK_BYTES, warnings
from ncu_server.wire.evaluation import Memory
from ncu_server.worker.memory import MemoryWatch
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server

MIB = 1 << 20
SCRATCH = 256 * MIB
LATER = "scratch = torch.ones(64 << 20)"
CONSTRUCTED = "self.scratch = torch.ones(64 << 20)"
NATIVE = "import mmap; scratch = mmap.mmap(-1, 256 << 20); scratch.write(bytes(256 << 20)); scratch.close()"
GPU = """
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r'''
#include <cuda_runtime.h>
static void* scratch = nullptr;
__global__ void add(const float* a, const float* b, const float* c, float* o, float s, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m) o[i] = a[i] * s + b[i] + c[i % n];
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView b, tvm::ffi::TensorView o, double s) {
  if (!scratch) cudaMalloc(&scratch, BYTES);
  int m = x.numel(), n = b.numel();
  const float *p = (const float*)x.data_ptr(), *q = (const float*)y.data_ptr(), *r = (const float*)b.data_ptr();
  add<<<(m + 255) / 256, 256>>>(p, q, r, (float*)o.data_ptr(), (float)s, n, m);
}
'''
kernel = tvm_ffi.cpp.load_inline("scratch", cuda_sources=SOURCE, functions=["run"])
"""


def memory(host: float, reference: float, device: float | None = None, of_it: float | None = None) -> Memory:
    return Memory(host_bytes=host, reference_host_bytes=reference, device_bytes=device, reference_device_bytes=of_it)


@pytest.mark.parametrize(
    ("taken", "kinds"),
    [
        (memory(8 << 30, 4 * MIB), ["host"]),
        (memory(2 * SLACK_BYTES, SLACK_BYTES), ["host"]),
        (memory(2 * SLACK_BYTES - 1, SLACK_BYTES), []),
        (memory(SLACK_BYTES, 0), ["host"]),
        (memory(20 * MIB, 4), []),
        (memory(0, 0, 8 << 30, 1 << 30), ["device"]),
        (memory(0, 0, 8 << 30, 5 << 30), []),
        (memory(8 << 30, 1, 8 << 30, 0), ["host", "device"]),
        (None, []),
    ],
)
def test_a_verdict_warns_from_twice_the_reference_on(taken: Memory | None, kinds: list[str]) -> None:
    said = warnings(taken)
    assert [next(kind for kind in ("host", "device") if f"{kind}'s" in one) for one in said] == kinds


def test_the_sentence_says_how_much_and_how_many_times() -> None:
    (said,) = warnings(memory(8 << 30, 4 * MIB))
    assert said == "memory: takes 8 GiB of the host's memory, 2048.0 times the reference's 4 MiB"


def with_torch() -> None:
    torch.ones(SCRATCH // 4)


def with_malloc() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    block = libc.malloc(ctypes.c_size_t(SCRATCH))
    ctypes.memset(block, 1, SCRATCH)
    libc.free(block)


def with_mmap() -> None:
    with mmap.mmap(-1, SCRATCH) as pages:
        pages.write(bytes(1) * SCRATCH)


@pytest.mark.parametrize("work", [with_torch, with_malloc, with_mmap])
def test_the_height_counts_what_is_gone_at_the_end_whoever_asked(work: Callable[[], None]) -> None:
    work()  # what an earlier call has taken and freed hides nothing
    with MemoryWatch(on_host=True) as watch:
        work()
    assert SCRATCH * 0.99 <= watch.peak["host_bytes"] < 3 * SCRATCH
    assert watch.held["host_bytes"] < SCRATCH // 2
    assert watch.peak["device_bytes"] == 0


def test_what_stays_is_held() -> None:
    with MemoryWatch(on_host=True) as watch:
        kept = torch.ones(SCRATCH // 4)
    assert SCRATCH * 0.99 <= watch.held["host_bytes"] < 1.1 * SCRATCH
    assert kept.numel() == SCRATCH // 4


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("at", "scratch"), [("return out", LATER), ("return out", NATIVE), ("self.scale = scale", CONSTRUCTED)]
)
async def test_a_verdict_tells_of_memory_out_of_proportion(server: Server, at: str, scratch: str) -> None:
    result = await server.evaluate(edit(QUICK, at, f"{scratch}; {at}"))
    assert result["status"] == "passed", result["log"]
    taken = result["memory"]
    assert SCRATCH * 0.99 <= taken["host_bytes"] < 3 * SCRATCH and taken["reference_host_bytes"] < 16 * MIB
    assert taken["device_bytes"] is None
    assert any(one.startswith("memory: takes ") for one in result["warnings"])


@pytest.mark.asyncio(loop_scope="session")
async def test_a_verdict_is_silent_of_memory_as_the_reference_takes_it(server: Server) -> None:
    result = await server.evaluate(QUICK)
    assert result["memory"]["host_bytes"] < 16 * MIB
    assert not [one for one in result["warnings"] if one.startswith("memory")]


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("size", "warned"), [(1 << 30, True), (1 << 10, False)])
async def test_memory_that_the_driver_gives_is_the_candidates(server: Server, size: int, warned: bool) -> None:
    kernel = edit(GPU, "BYTES", f"{size}ull") + QUICK[QUICK.index("class ModelNew") :]
    answer = await server.call("evaluate_kernel", candidate=kernel, problem=SCALE_ADD, target="cuda")
    result = answer.structured_content
    assert result is not None and result["status"] == "passed", answer
    assert (result["memory"]["device_bytes"] >= size) and result["memory"]["reference_device_bytes"] < 16 * MIB
    assert any("device's memory" in one for one in result["warnings"]) is warned
