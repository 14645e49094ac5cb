"""What else goes on on an NVIDIA GPU while it is timed: clock changes, throttling, other users."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
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


WORKS = 5  # percent of the last second in which a kernel ran, from which on somebody is at work


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its number on the machine; `busy` says who else is at work on it, as far as that can be told; empty
    where nobody is."""

    index: int
    name: str
    uuid: str
    memory_bytes: float
    busy: str


def visible() -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; none where NVML does not answer."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        return [_gpu(index, handles[index]) for index in shown(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)]
    except pynvml.NVMLError:
        return []


def shown(variable: str | None, uuids: Sequence[str]) -> list[int]:
    """The numbers of the GPUs that a value of CUDA_VISIBLE_DEVICES leaves; as CUDA has it, the first word that names
    none ends the list."""
    if variable is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for word in (part.strip() for part in variable.split(",")):
        numbers = [n for n, uuid in enumerate(uuids) if word == str(n) or (word and uuid.startswith(word))]
        if len(numbers) != 1:
            break
        found += [number for number in numbers if number not in found]
    return found


def _gpu(index: int, handle: Any) -> Gpu:
    name, uuid = str(pynvml.nvmlDeviceGetName(handle)), str(pynvml.nvmlDeviceGetUUID(handle))
    return Gpu(index, name, uuid, float(pynvml.nvmlDeviceGetMemoryInfo(handle).total), _busy(handle))


def _busy(handle: Any) -> str:
    if others := _strangers(handle):
        return f"{len(others)} other process{'es have' if len(others) > 1 else ' has'} it open"
    try:
        share = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:  # a part of a GPU has no such number
        return ""
    return f"kernels run {share} % of the time" if share >= WORKS else ""


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

    def facts(self) -> dict[str, float]:
        """The SM clock in MHz: its median, its lowest."""
        if not self._clocks:
            return {}
        return {"sm_clock_mhz": float(median(self._clocks)), "lowest_sm_clock_mhz": float(min(self._clocks))}


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
