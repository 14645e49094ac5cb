"""What the device reaches, measured once for a device and torch, then read from the cache on disk."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from ncu_server.judge.problem import PreparedProblem
from ncu_server.machine.device import Device
from ncu_server.machine.store import write_whole
from ncu_server.wire.evaluation import Peaks

FORMAT = "6"
"""1: a copy on the CPU was torch's alone; 2: neither int8, fp8 nor L2; 3: a GPU's copy the driver's; 4: no reading;
5: int8 as fast as torch multiplies it."""


async def measure(prepared: PreparedProblem, anew: bool = False) -> Peaks:
    """The device's peaks; `anew` measures again and keeps the better of both. Raises Refusal."""
    kept = _place(prepared.device)
    before = _read(kept)
    if before is not None and not anew:
        return before
    measured = await prepared.peaks()
    found = Peaks.model_validate({name: rate and float(f"{rate:.6g}") for name, rate in measured.items()})
    if before is not None:
        found = Peaks(**{name: max(a, b) for (name, a), (_, b) in zip(found, before, strict=True) if a and b})
    write_whole(kept, found.model_dump_json())
    return found


def load(device: Device) -> Peaks | None:
    """What was measured before, if anything was."""
    return _read(_place(device))


def _place(device: Device) -> Path:
    probe = device.probe
    parts = (FORMAT, probe.device, probe.arch, str(probe.threads), version("torch"))
    return device.cache / "peaks" / f"{hashlib.sha256('-'.join(parts).encode()).hexdigest()[:20]}.json"


def _read(kept: Path) -> Peaks | None:
    try:
        return Peaks.model_validate_json(kept.read_text())
    except (OSError, ValidationError):
        return None
