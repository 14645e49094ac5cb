"""What plans for a GPU hang on beside its properties: clusters that fit, how far away memory is, the clock under a load
of the tensor cores."""

from __future__ import annotations

import ctypes
import functools
import statistics

import torch

from ncu_server.worker import driver, private
from ncu_server.worker.answers import Chip
from ncu_server.worker.driver import DriverError
from ncu_server.worker.timing.devices import Calls, Device

CLUSTERS = (2, 4, 8)
HOPS, HOP_BYTES = 8192, 32 << 10
"""Reads one after the other, each so far from all others that none lies in a line or a cache of another: 256 MiB."""

LOADS, LOAD_ROWS, CYCLES = 40, 8192, 1_000_000
"""Products ahead of a measurement of the clock (some 50 ms), their rows, and the cycles that are timed behind them."""

CLUSTER_DIMENSION, MOST_SHARED = 4, 8
"""cuda.h: CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""

CHASE = """
.version {version}
.target {target}
.address_size 64
.visible .entry chase(.param .u64 first, .param .u32 hops, .param .u64 out)
{{
  .reg .u64 %at, %to;
  .reg .u32 %left;
  .reg .pred %more;
  ld.param.u64 %at, [first];
  ld.param.u32 %left, [hops];
  ld.param.u64 %to, [out];
hop:
  ld.global.cg.u64 %at, [%at];
  sub.u32 %left, %left, 1;
  setp.ne.u32 %more, %left, 0;
  @%more bra hop;
  st.global.u64 [%to], %at;
  ret;
}}
"""
"""Each read tells where the next one is."""


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, of which the value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def chip(device: Device) -> Chip:
    """Each of it is None or empty where the driver does not tell, and on a host all of it."""
    if device.is_host:
        return {"sms": None, "clusters": [], "latency_ns": None, "tensor_mhz": None}
    try:
        chase = _chase()
        clusters, latency = _clusters(chase), _latency_ns(device, chase)
    except (OSError, AttributeError, DriverError):
        clusters, latency = [], None
    sms = int(torch.cuda.get_device_properties(0).multi_processor_count)
    return {"sms": sms, "clusters": clusters, "latency_ns": latency, "tensor_mhz": _tensor_mhz(device)}


def source(capability: tuple[int, int]) -> str:
    """The PTX of CHASE for a device of this compute capability, which a driver compiles."""
    old = "sm_80" if capability >= (8, 0) else "sm_70"
    version, target = ("7.8", "sm_90") if capability >= (9, 0) else ("7.0", old)
    return CHASE.format(version=version, target=target)


def _chase() -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    text = ctypes.c_char_p(source(torch.cuda.get_device_capability()).encode())
    driver.call("cuModuleLoadData", ctypes.byref(module), text)
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"chase")
    return function


def _clusters(function: ctypes.c_void_p) -> list[int]:
    """How many clusters of each size of CLUSTERS run at once whose blocks have an SM each; none before sm_90."""
    if torch.cuda.get_device_capability() < (9, 0):
        return []
    shared = int(torch.cuda.get_device_properties(0).shared_memory_per_block_optin)
    driver.call("cuFuncSetAttribute", function, MOST_SHARED, shared)
    found = []
    for size in CLUSTERS:
        cluster = Attribute(CLUSTER_DIMENSION, 0, (size, 1, 1))
        triple = ctypes.c_uint * 3
        launch = Launch(triple(size, 1, 1), triple(128, 1, 1), shared, None, ctypes.pointer(cluster), 1)
        count = ctypes.c_int()
        driver.call("cuOccupancyMaxActiveClusters", ctypes.byref(count), function, ctypes.byref(launch))
        found.append(count.value)
    return found


def _latency_ns(device: Device, function: ctypes.c_void_p) -> float:
    """Nanoseconds of a read that misses all caches, with the memory idle."""
    words = HOP_BYTES // 8
    ring = torch.zeros(HOPS * words, dtype=torch.int64, device="cuda")
    order = torch.randperm(HOPS, device="cuda") * words
    ring[order] = ring.data_ptr() + 8 * order.roll(-1)
    out = torch.empty(1, dtype=torch.int64, device="cuda")
    first, hops = ctypes.c_uint64(ring.data_ptr()), ctypes.c_uint(HOPS)
    to = ctypes.c_uint64(out.data_ptr())
    arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in (first, hops, to)))

    def launch(_: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)

    return min(device.clock(Calls(launch, 4))) * 1e3 / HOPS


def _tensor_mhz(device: Device) -> float:
    """The SMs' clock right behind products that keep all of them busy: power limits it, and it comes back slowly."""
    x = torch.randn(LOAD_ROWS, LOAD_ROWS, device="cuda").to(torch.bfloat16)
    multiply, sleep = functools.partial(torch.mm, x, x, out=torch.empty_like(x)), private.take("torch.cuda._sleep")

    def load(_: int) -> None:
        for _ in range(LOADS):
            multiply()

    return CYCLES / statistics.median(device.clock(Calls(lambda _: sleep(CYCLES), 5, before=load, cold=False)))
