"""What the server has to know of a target: what this machine has of it, and how its children are set up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resolution:
    """What timings on a device cannot tell apart.

    `tie` is the half-width of the band around 1 in which a speed-up counts as a tie. `apart_us`: by how much a
    call's time differs from process to process, as a standard deviation, which no repetition inside one process shows.
    """

    tie: float
    apart_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What this machine has for a target; `reason` and `fix` say what is missing and what to do about it.

    `uuid` tells the device from others of its kind, where there may be several; `toolkit` is what compiles, with its
    version. `unsupported` says that all is there, and a package in a version that cannot be used.
    """

    available: bool
    device: str
    arch: str
    threads: int
    compiler: str | None = None
    reason: str | None = None
    fix: str | None = None
    uuid: str | None = None
    toolkit: str | None = None
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """One language on one device.

    `device` names the class in ncu_server.worker.timing.devices; `resolution` is what timings there cannot tell apart;
    `builds_disturb` says that compiling must not overlap with timing; `baselines` are those that differ from each
    other there. `warms_up` says that a first call compiles, so that the build is a call.
    `packages` are those on whose private parts its processes lean (see ncu_server.machine.versions).
    `environment` holds for all processes of the target.
    """

    name: str
    device: str
    resolution: Resolution
    builds_disturb: bool
    probe: Callable[[], Probe]
    environment: Callable[[Probe], dict[str, str]]
    baselines: tuple[str, ...]
    warms_up: bool = False
    packages: tuple[str, ...] = ("torch",)
