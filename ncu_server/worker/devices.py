"""The two devices that kernels run on, each with the same small pieces: settle, clock, flush, poison, copy rate."""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

M_PERTURB = -6  # mallopt(3): fill what malloc returns with the complement of the given byte
CPU_COPY_BYTES = 256 << 20
CUDA_COPY_BYTES = 1 << 30
CYCLES_PER_US = 2_000  # of an SM clock near 2 GHz; a slower clock only makes the lead longer
MIN_LEAD_US, MAX_LEAD_US = 20.0, 2_000.0


Call = Callable[[int], Any]


class Cpu:
    """The cores, with as many threads as the server's environment gives."""

    torch_device = "cpu"

    def __init__(self) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def settle(self) -> None:
        """Nothing runs behind our back here."""

    def poison(self, on: bool, room: int = 0) -> None:
        """Fill fresh memory with a pattern, so that unwritten outputs show; off for timing."""
        ctypes.CDLL(None).mallopt(M_PERTURB, 1 if on else 0)

    def clock(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        """Microseconds of each of `count` calls; `before` is run, untimed, ahead of each."""
        times = []
        for i in range(count):
            if before:
                before(i)
            start = time.perf_counter_ns()
            out = call(i)
            times.append((time.perf_counter_ns() - start) / 1e3)
            del out
        return times

    def cache_bytes(self) -> int:
        """Size of the last-level cache."""
        for level in ("index3", "index2"):
            size = Path(f"/sys/devices/system/cpu/cpu0/cache/{level}/size")
            if size.exists():
                return int(size.read_text().strip().removesuffix("K")) << 10
        return 32 << 20

    def copy_gbps(self) -> float:
        """Bytes read plus bytes written a second by torch's copy, best of 5, in GB/s."""
        a = torch.ones(CPU_COPY_BYTES // 4)
        b = torch.zeros_like(a)
        best = min(self.clock(lambda _: b.copy_(a), 5))
        return 2 * CPU_COPY_BYTES / best / 1e3


class Cuda:
    """The current CUDA device."""

    torch_device = "cuda"

    def __init__(self) -> None:
        self._flush = torch.empty(2 * self.cache_bytes(), dtype=torch.uint8, device="cuda")
        self._lead_us = MIN_LEAD_US

    def settle(self) -> None:
        torch.cuda.synchronize()

    def poison(self, on: bool, room: int = 0) -> None:
        """Leave NaN bits in the allocator's free blocks, where the next torch.empty finds them."""
        if on:
            blocks = [torch.empty(max(room, 512), dtype=torch.uint8, device="cuda").fill_(255) for _ in range(2)]
            torch.cuda.synchronize()
            del blocks

    def clock(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        """Device time of each of `count` calls in microseconds, between CUDA events, the L2 flushed before each.

        `before` is run ahead of each, untimed.

        The device first spins for longer than the host takes to launch the call (as the block before showed), so that
        launch overhead is hidden alike on every side, as it is where the stream is kept busy.
        """
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        launches = []
        for i, (start, end) in enumerate(marks):
            if before:
                before(i)
            self._flush.zero_()
            torch.cuda._sleep(int(self._lead_us * CYCLES_PER_US))
            start.record()
            began = time.perf_counter_ns()
            call(i)
            launches.append((time.perf_counter_ns() - began) / 1e3)
            end.record()
        torch.cuda.synchronize()
        self._lead_us = min(max(2 * statistics.median(launches), MIN_LEAD_US), MAX_LEAD_US)
        return [start.elapsed_time(end) * 1e3 for start, end in marks]

    def cache_bytes(self) -> int:
        return int(torch.cuda.get_device_properties(0).L2_cache_size)

    def copy_gbps(self) -> float:
        """Bytes read plus bytes written a second by a device-to-device copy, best of 10, in GB/s."""
        a = torch.ones(CUDA_COPY_BYTES // 4, device="cuda")
        b = torch.zeros_like(a)
        best = min(self.clock(lambda _: b.copy_(a), 10))
        return 2 * CUDA_COPY_BYTES / best / 1e3


Device = Cpu | Cuda
DEVICES: dict[str, type[Cpu] | type[Cuda]] = {"cpu": Cpu, "cuda": Cuda}
