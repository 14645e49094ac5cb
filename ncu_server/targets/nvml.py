"""What else goes on on an NVIDIA GPU while it is timed: clock changes, throttling, other users."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pynvml

STEADY = 0.03  # a clock that moves by more than this is worth a note
# nvmlClocksEventReason* of nvml.h, those that slow a busy device down.
THROTTLES = {
    0x04: "the power cap",
    0x08: "a hardware slowdown",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "the power brake",
}


class CudaGauge:
    """NVML on one device. Where NVML does not answer, `notes` says so."""

    def __init__(self, uuid: str | None) -> None:
        self._uuid = uuid
        self._clocks: list[int] = []
        self._reasons = 0
        self._others = 0
        self._fault: str | None = None

    def __call__(self) -> None:
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
            self._clocks.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
            self._reasons |= pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            self._others = max(self._others, len(_strangers(handle)))
        except pynvml.NVMLError as fault:
            self._fault = str(fault)

    def notes(self) -> list[str]:
        found = [words for bit, words in THROTTLES.items() if self._reasons & bit]
        said = [f"the GPU was slowed down by {' and '.join(found)} while this was timed"] if found else []
        if self._clocks and min(self._clocks) < (1 - STEADY) * max(self._clocks):
            said.append(
                f"the SM clock moved between {min(self._clocks)} and {max(self._clocks)} MHz while this was timed"
            )
        if self._others:
            said.append(f"other processes ({self._others}) had the GPU open while this was timed")
        if self._fault:
            said.append(f"clocks and other users of the GPU were not watched: NVML says {self._fault}")
        return said


def _strangers(handle: Any) -> set[int]:
    """Processes with a context on the device that do not descend from this server. In a container NVML may tell pids
    of the host, which mean nothing here: those are not counted."""
    using = {p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    return {pid for pid in using if Path(f"/proc/{pid}").exists() and os.getpid() not in _ancestors(pid)}


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError, IndexError, ValueError):
        while pid > 1 and pid not in found:
            found.add(pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return found
