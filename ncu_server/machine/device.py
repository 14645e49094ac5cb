"""One target on this machine: all that a verb needs of it, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ncu_server.machine.lease import Lease
from ncu_server.sandbox.forkserver import ForkServer
from ncu_server.targets import Probe, Target


@dataclass(frozen=True, slots=True)
class Device:
    """A target, what this machine has of it, and who runs there when.

    `fork_server` forks its processes, which find `environment`; `lease` says whose turn it is. What outlives the server
    lies in `cache`, what does not in `work`.
    """

    target: Target
    probe: Probe
    fork_server: ForkServer
    lease: Lease
    environment: Mapping[str, str]
    cache: Path
    work: Path

    @property
    def name(self) -> str:
        """`cpu` or `cuda`: the class in ncu_server.worker.timing.devices."""
        return self.target.device
