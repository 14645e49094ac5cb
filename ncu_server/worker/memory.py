"""How much memory something takes at its height, on the host and on the device, as the process itself can see it.

The host's is that of anonymous and shared pages (Linux keeps the height as VmHWM, which clear_refs resets: proc(5)).
The device's is torch's own peak, and beside it what is gone of the device's free memory without torch: a candidate may
ask the driver itself. What it asks for there and gives back before the end is not seen.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from ncu_server.worker.answers import Memory
from ncu_server.worker.timing import allocator

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
NONE = Memory(host_bytes=0, device_bytes=0)


class MemoryWatch:
    """From the beginning of its block to the end: `peak` is the most that was taken beyond what was there, `held` what
    is still taken, in bytes. One at a time."""

    peak, held = NONE, NONE

    def __init__(self, on_host: bool) -> None:
        """`on_host`: there is no other memory than the host's to look at."""
        self._on_host = on_host

    def __enter__(self) -> MemoryWatch:
        allocator.release()  # else what was freed before serves again unseen
        with contextlib.suppress(OSError):
            CLEAR.write_text(RESET_PEAK)
        self._before = _status()
        if not self._on_host:
            torch.cuda.reset_peak_memory_stats()
            self._allocated, self._beside = torch.cuda.memory_allocated(), _beside_torch()
        return self

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> None:
        if fault is not None:  # the device may be past asking
            return
        before, after = self._before, _status()
        mapped = after["RssFile"] - before["RssFile"]
        held = max(0, after["VmRSS"] - before["VmRSS"] - mapped)
        # Where the height cannot be reset, only what rises above the one before is seen.
        peak = max(held, after["VmHWM"] - before["VmHWM"] - max(0, mapped))
        device_peak = device_held = 0
        if not self._on_host:
            beside = max(0, _beside_torch() - self._beside)
            device_peak = max(0, torch.cuda.max_memory_allocated() - self._allocated) + beside
            device_held = max(0, torch.cuda.memory_allocated() - self._allocated) + beside
        self.peak = Memory(host_bytes=peak, device_bytes=device_peak)
        self.held = Memory(host_bytes=held, device_bytes=device_held)


def together(one: Memory, other: Memory) -> Memory:
    """What both take at once."""
    return Memory(
        host_bytes=one["host_bytes"] + other["host_bytes"], device_bytes=one["device_bytes"] + other["device_bytes"]
    )


def higher(one: Memory, other: Memory) -> Memory:
    """What the larger of both takes."""
    return Memory(
        host_bytes=max(one["host_bytes"], other["host_bytes"]),
        device_bytes=max(one["device_bytes"], other["device_bytes"]),
    )


def _status() -> dict[str, int]:
    """Sizes of this process by their names in proc(5), in bytes."""
    rows = (row.split() for row in STATUS.read_text().splitlines() if row.endswith(" kB"))
    return {name.rstrip(":"): int(size) << 10 for name, size, _ in rows}


def _beside_torch() -> int:
    """Bytes of the device that are taken by others than torch here."""
    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())
