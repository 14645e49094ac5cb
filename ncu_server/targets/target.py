"""What the server has to know of a target: what this machine has of it, and how its children are set up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ncu_server.rules.authorship import Evidence


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


class Gauge(Protocol):
    """Looks at the device each time it is called; `notes` says in words what was out of the ordinary, `facts` in
    numbers how it was."""

    def __call__(self) -> None: ...

    def notes(self) -> list[str]: ...

    def facts(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the judge has to know of a kind of device; the targets on it share it.

    `name` is its row of DEVICES in ncu_server.worker.timing.devices, `torch_device` what torch calls it, which several
    may share (torch's build for AMD calls its devices `cuda`). `has_nvidia_tools`: ncu and cuobjdump and
    compute-sanitizer look at its kernels. `keeps_memory`: large tensors come from memory that was used before (see
    ncu_server.worker.timing.allocator). `resolution` is what timings cannot tell apart, `gauge` what looks at the
    device between them, given its UUID; they go on for `sampling_s` seconds at most. A call that costs `first_sight_us`
    more for inputs at first sight than for known ones is noise. `read_over_copy`: how many times faster than it copies
    the device may read; a margin, not a measurement (on two cores of an EPYC torch read at 0.8 of libc's copy).
    """

    name: str
    torch_device: str
    has_nvidia_tools: bool
    resolution: Resolution
    gauge: Callable[[str | None], Gauge]
    evidence: Evidence
    sampling_s: float
    first_sight_us: float
    read_over_copy: float
    keeps_memory: bool = False

    @property
    def is_host(self) -> bool:
        """Whether its memory is the host's."""
        return self.torch_device == "cpu"


@dataclass(frozen=True, slots=True)
class Target:
    """One language on one device.

    `builds_disturb` says that compiling must not overlap with timing; `baselines` are those that differ from each
    other there. `warms_up` says that a first call compiles, so that the build is a call.
    `packages` are those on whose private parts its processes lean (see ncu_server.machine.versions).
    `environment` holds for all processes of the target. `build_arch`, where one compiles for an architecture that need
    not be here, says how the compiler names it.
    """

    name: str
    hardware: Hardware
    builds_disturb: bool
    probe: Callable[[], Probe]
    environment: Callable[[Probe], dict[str, str]]
    baselines: tuple[str, ...]
    warms_up: bool = False
    packages: tuple[str, ...] = ("torch",)
    build_arch: Callable[[str], str] | None = None

    @property
    def device(self) -> str:
        """The hardware's name, by which workers find its class."""
        return self.hardware.name

    @property
    def resolution(self) -> Resolution:
        """The hardware's."""
        return self.hardware.resolution
