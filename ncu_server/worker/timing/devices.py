"""The two devices that kernels run on, each with the same small pieces: settle, clock, flush, poison, copy rate."""

from __future__ import annotations

import ctypes
import functools
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ncu_server.worker import private
from ncu_server.worker.timing import allocator

CPU_COPY_BYTES = 256 << 20
CUDA_COPY_BYTES = 1 << 30
READ_ROW = 1 << 14  # floats of a row that is read: enough rows for all SMs, long enough for wide loads
BYTE_PRODUCT, CACHE_ROWS = 8192, 64
CYCLES_PER_US = 2_000  # of an SM clock near 2 GHz; a slower clock only makes the lead longer
MOST_BLOCKS = 64  # that are poisoned at once
GIANT = 1 << 30  # bytes of inputs or outputs that are no more than once where they need not be
ALONE = 256 << 20  # bytes of a poisoned block from which on there is but one
LEFT = 128 << 20  # bytes that a process may keep for itself between two verbs
# Bound before any candidate's code: replacing them in `time` or in the classes of `torch.cuda` changes nothing here.
_now, _stream, _synchronize, _sum = time.perf_counter_ns, torch.cuda.current_stream, torch.cuda.synchronize, torch.sum
_sleep, _Event = private.take("torch.cuda._sleep"), private.take("torch._C._CudaEventBase")


class Lead(NamedTuple):
    """How long a GPU spins ahead of a group: for so many of the usual launches, in microseconds not less nor more."""

    launches: float
    least_us: float
    most_us: float


USUAL, SURE = Lead(2, 20.0, 5_000.0), Lead(4, 1_000.0, 50_000.0)


@dataclass(frozen=True, slots=True)
class Calls:
    """What is timed: `count` groups of `group` calls. `before` a group, and `after` it with the output of its `kept`
    call, the clock stands still; `cold` flushes the cache ahead of each group. `lead` is SURE where groups are
    few and compared with one another: not even the slowest launch may show."""

    call: Callable[[int], Any]
    count: int
    group: int = 1
    before: Callable[[int], None] = lambda _: None
    after: Callable[[int, Any], None] = lambda _, out: None
    cold: bool = True
    kept: int = 0
    lead: Lead = USUAL

    def run(self, group: int) -> Any:
        """The calls of one group; the output of that which is kept."""
        kept = None
        for i in range(self.group):
            out = self.call(group * self.group + i)
            if i == self.kept:
                kept = out
        return kept


class Cpu:
    """The cores, with as many threads as the server's environment gives."""

    torch_device = "cpu"
    is_host = True
    flushes = False
    has_graphs = False
    activities = (torch.profiler.ProfilerActivity.CPU,)
    piece = 1 << 19  # elements: small enough that temporaries stay in the allocator

    def __init__(self) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    @staticmethod
    def settle() -> None:
        """Nothing runs behind our back here."""

    @staticmethod
    def count() -> int:
        """How many devices of this kind torch has."""
        return 1

    @staticmethod
    def watched(call: Callable[[], Any], name: str) -> None:
        """A call in a range of its own, for a profiler that looks on."""
        call()

    def release(self) -> None:
        """Give back the memory that has been freed."""
        allocator.release()

    def memory(self) -> tuple[int, int]:
        """The host's memory is not planned."""
        return 0, 0

    def trim(self) -> None:
        """What is freed here goes back by itself, but for what is used again."""

    def evict(self) -> None:
        """Fill the last-level cache with something else."""
        torch.zeros(2 * self.cache_bytes(), dtype=torch.uint8)

    def poison(self, on: bool, room: int = 0) -> None:
        """Fill fresh memory with a pattern, so that unwritten outputs show; off for timing."""
        allocator.fill(on)

    def clock(self, calls: Calls) -> list[float]:
        """Microseconds of a call, the mean of each group; nothing but the rotation of inputs empties the cache here."""
        times = []
        for group in range(calls.count):
            calls.before(group)
            start = _now()
            out = calls.run(group)
            times.append((_now() - start) / 1e3 / calls.group)
            calls.after(group, out)
            del out
        return times

    def cache_bytes(self) -> int:
        """Size of the last-level cache."""
        for level in ("index3", "index2"):
            size = Path(f"/sys/devices/system/cpu/cpu0/cache/{level}/size")
            if size.exists():
                return int(size.read_text().strip().removesuffix("K")) << 10
        return 32 << 20

    def features(self) -> list[str]:
        """What a kernel's author should know of it: its caches, the first one's sizes."""
        caches = []
        for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            level, kind, size = ((place / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                caches.append(f"{size.removesuffix('K')} KiB L{level} cache")
        return caches

    def peaks(self) -> dict[str, float | None]:
        """See `_peaks`."""
        return _peaks(self, CPU_COPY_BYTES, {"fp32_tflops": (torch.float32, False, 1024)})

    def copies(self, to: torch.Tensor, of: torch.Tensor) -> list[Callable[[int], Any]]:
        """Ways to copy a contiguous tensor: torch's, and libc's, whose large copies write past the cache."""
        threads = torch.get_num_threads()
        size, each = to.nbytes, -(-to.nbytes // threads)

        def part(i: int) -> None:
            ctypes.memmove(to.data_ptr() + i * each, of.data_ptr() + i * each, max(0, min(each, size - i * each)))

        def streamed(_: int) -> None:
            if threads == 1:
                part(0)
            else:
                list(pool.map(part, range(threads)))

        pool = ThreadPoolExecutor(threads)  # starts a thread at its first use
        return [lambda _: to.copy_(of), streamed]

    def reads(self, of: torch.Tensor) -> list[Callable[[int], Any]]:
        """See `_reads`."""
        return _reads(of)


class Cuda:
    """The current CUDA device."""

    torch_device = "cuda"
    is_host = False
    flushes = True
    has_graphs = True
    activities = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
    piece = 1 << 24  # elements: few launches

    def __init__(self) -> None:
        self._spare = torch.empty(
            self.cache_bytes() // 2, dtype=torch.float32, device="cuda"
        )  # floats: twice the cache
        self._read = torch.empty((), dtype=torch.float32, device="cuda")
        self._launch_us = 0.0

    @staticmethod
    def settle() -> None:
        torch.cuda.synchronize()

    @staticmethod
    def count() -> int:
        return int(torch.cuda.device_count())

    @staticmethod
    def watched(call: Callable[[], Any], name: str) -> None:
        torch.cuda.nvtx.range_push(name)
        torch.cuda.profiler.start()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        torch.cuda.nvtx.range_pop()

    def release(self) -> None:
        torch.cuda.empty_cache()

    def memory(self) -> tuple[int, int]:
        """What is free of the device's memory, with what torch holds of it here, and all of it, in bytes."""
        free, total = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved()), int(total)

    def trim(self) -> None:
        """Give back what is free, where that is much: other processes may want it."""
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > LEFT:
            torch.cuda.empty_cache()

    def evict(self) -> None:
        """Left to the clock, which flushes ahead of each group."""

    def poison(self, on: bool, room: int = 0) -> None:
        """Leave NaN bits in the allocator's free blocks of this room, where the next torch.empty finds them."""
        blocks: list[torch.Tensor] = []
        reserved, least = torch.cuda.memory_reserved(), 1 if room > ALONE else 2
        while on and len(blocks) < MOST_BLOCKS and (len(blocks) < least or torch.cuda.memory_reserved() == reserved):
            blocks.append(torch.empty(max(room, 512), dtype=torch.uint8, device="cuda").fill_(255))
        torch.cuda.synchronize()

    def clock(self, calls: Calls) -> list[float]:
        """Device time of a call in microseconds, the mean of each group, between CUDA events.

        The device first spins for longer than the host takes to launch a group (as the block before showed), so that
        launch overhead is hidden alike on every side, as it is where the stream is kept busy.
        """
        lead_us = min(max(calls.lead.launches * self._launch_us, calls.lead.least_us), calls.lead.most_us)
        marks = [tuple(_Event(enable_timing=True) for _ in range(2)) for _ in range(calls.count)]
        stream = _stream()
        launches = []
        for group, (start, end) in enumerate(marks):
            calls.before(group)
            if calls.cold:
                self._flush()
            _sleep(int(lead_us * CYCLES_PER_US))
            start.record(stream)
            began = _now()
            out = calls.run(group)
            launches.append((_now() - began) / 1e3)
            end.record(stream)
            calls.after(group, out)
            del out
        _synchronize()
        self._launch_us = statistics.median(launches)
        return [start.elapsed_time(end) * 1e3 / calls.group for start, end in marks]

    def _flush(self) -> None:
        """Empty the L2 cache: what is written drives all else out, and what is read after it leaves nothing that the
        next kernel would have to write back (64 MB are summed in 24 us then on an H200, in 30 us after a write)."""
        self._spare.zero_()
        _sum(self._spare, dim=0, out=self._read)

    def cache_bytes(self) -> int:
        return int(torch.cuda.get_device_properties(0).L2_cache_size)

    def features(self) -> list[str]:
        """What a kernel's author should know of it: processors and memories."""
        known = torch.cuda.get_device_properties(0)

        def sized(name: str, unit: int, words: str) -> list[str]:
            """Nothing of what this torch does not tell."""
            value = getattr(known, name, None)
            return [] if value is None else [f"{value / unit:,.0f} {words}"]

        return [
            *sized("multi_processor_count", 1, "SMs"),
            *sized("total_memory", 1 << 30, "GiB"),
            *sized("L2_cache_size", 1 << 20, "MiB L2 cache"),
            *sized("shared_memory_per_block_optin", 1 << 10, "KiB shared memory a block at most, on request"),
            *sized("shared_memory_per_block", 1 << 10, "KiB shared memory a block without"),
            *sized("shared_memory_per_multiprocessor", 1 << 10, "KiB shared memory an SM"),
            *sized("regs_per_multiprocessor", 1, "registers an SM"),
        ]

    def peaks(self) -> dict[str, float | None]:
        """See `_peaks`; formats of a byte and the L2 cache as well, where the device has them."""
        rates = {
            "fp32_tflops": (torch.float32, False, 4096),
            "tf32_tflops": (torch.float32, True, 8192),
            "bf16_tflops": (torch.bfloat16, False, 8192),
        }
        found = _peaks(self, CUDA_COPY_BYTES, rates)
        return found | _byte_products(self) | {"l2_gbps": self._cached()}

    def _cached(self) -> float:
        """GB/s of what stays in the L2 cache, the best of a copy of a buffer and of sums that read it again and
        again; a quarter of the cache, since half of it may lie behind the other half."""
        size = self.cache_bytes() // 4
        x = torch.ones(size // 8, dtype=torch.float32, device="cuda")
        y, sums = torch.empty_like(x), torch.empty(CACHE_ROWS, dtype=torch.float32, device="cuda")
        rows = x.expand(CACHE_ROWS, -1)
        copy = min(self.clock(Calls(lambda _: y.copy_(x), 10, group=CACHE_ROWS, cold=False)))
        total = self.clock(Calls(_ignoring(functools.partial(torch.sum, rows, dim=1, out=sums)), 10, cold=False))
        return float(max(2 * x.nbytes / copy, CACHE_ROWS * x.nbytes / min(total)) / 1e3)

    def copies(self, to: torch.Tensor, of: torch.Tensor) -> list[Callable[[int], Any]]:
        """Ways to copy a tensor: the driver's, which a pointwise kernel of torch outruns by a tenth on an H200."""
        return [lambda _: to.copy_(of), _ignoring(functools.partial(torch.mul, of, 1.0, out=to))]

    def reads(self, of: torch.Tensor) -> list[Callable[[int], Any]]:
        """See `_reads`."""
        return _reads(of)


Device = Cpu | Cuda
DEVICES: dict[str, type[Cpu] | type[Cuda]] = {"cpu": Cpu, "cuda": Cuda}


def _peaks(device: Device, size: int, rates: dict[str, tuple[torch.dtype, bool, int]]) -> dict[str, float | None]:
    """Best of ten: the rates of a copy (bytes read plus bytes written) and of reading alone in GB/s, of square matrix
    products in TFLOP/s."""
    a = torch.ones(size // 4, dtype=torch.float32, device=device.torch_device)
    b = torch.zeros_like(a)
    copied = min(min(device.clock(Calls(copy, 10))) for copy in device.copies(b, a))
    read = min(min(device.clock(Calls(each, 10))) for each in device.reads(a))
    found: dict[str, float | None] = {
        "copy_gbps": 2 * size / copied / 1e3,
        "read_gbps": size / read / 1e3,
        "last_cache_bytes": float(device.cache_bytes()),
    }
    allowed = torch.backends.cuda.matmul.allow_tf32
    for name, (dtype, tf32, n) in rates.items():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        x, y = (torch.randn(n, n, device=device.torch_device).to(dtype) for _ in range(2))
        out = torch.empty_like(x)
        found[name] = (
            2 * n**3 / min(device.clock(Calls(_ignoring(functools.partial(torch.mm, x, y, out=out)), 10))) / 1e6
        )
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return found


def _reads(of: torch.Tensor) -> list[Callable[[int], Any]]:
    """Ways to read a contiguous tensor that write next to nothing: its sum, and the sums and maxima of its rows."""
    rows = of.view(-1, READ_ROW)
    each, whole = torch.empty_like(rows[:, 0]), torch.empty_like(of[0])
    return [
        _ignoring(functools.partial(torch.sum, of, dim=0, out=whole)),
        _ignoring(functools.partial(torch.sum, rows, dim=1, out=each)),
        _ignoring(functools.partial(torch.amax, rows, dim=1, out=each)),
    ]


def _byte_products(device: Cuda) -> dict[str, float | None]:
    """TFLOP/s of square products of int8 and of fp8 (e4m3, one scale), as `_peaks` measures the others; None where the
    device has no units for them (tensor cores for int8 since sm_75, for fp8 since sm_89) or torch no product."""
    n, capability = BYTE_PRODUCT, torch.cuda.get_device_capability()
    whole = torch.randint(-127, 128, (n, n), dtype=torch.int8, device="cuda")
    found: dict[str, float | None] = {"int8_tflops": None, "fp8_tflops": None}
    products: dict[str, Callable[[], Any]] = {}
    if capability >= (7, 5) and (multiply := private.take_spared("torch._int_mm")):
        products["int8_tflops"] = functools.partial(multiply, whole, whole.t())
    if capability >= (8, 9) and (multiply := private.take_spared("torch._scaled_mm")):
        small, scale = torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        products["fp8_tflops"] = functools.partial(
            multiply, small, small.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
        )
    for name, product in products.items():
        found[name] = 2 * n**3 / min(device.clock(Calls(_ignoring(product), 10))) / 1e6
    return found | {"int8_tflops": int8_rate(found["int8_tflops"], found["fp8_tflops"], capability)}


def int8_rate(whole: float | None, small: float | None, capability: tuple[int, int]) -> float | None:
    """The rate of int8 products, which is that of fp8 on Ada and Hopper (NVIDIA, H100 Tensor Core GPU Architecture,
    table 2), where torch's own reaches less: 949 of 1,454 on an H200, where a kernel with more to do made 1,249."""
    return max(whole, small) if whole and small and capability < (10, 0) else whole


def _ignoring(run: Callable[[], Any]) -> Callable[[int], Any]:
    return lambda _: run()
