"""One target on this machine: all that a tool needs of it, in one value."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ncu_server.machine.activity import during
from ncu_server.machine.lease import Lease, Progress
from ncu_server.sandbox.forkserver import ForkServer
from ncu_server.targets import Probe, Target
from ncu_server.targets.cpu import MANY_CORES


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

    @property
    def compiles_beside(self) -> bool:
        """Whether there are cores enough for torch.compile beside what else goes on."""
        return len(os.sched_getaffinity(0)) >= MANY_CORES

    @contextlib.asynccontextmanager
    async def compiling(self, progress: Progress | None = None) -> AsyncIterator[None]:
        """Cores for torch.compile. Nothing is timed meanwhile on few cores, or where they are what is timed."""
        beside = self.compiles_beside and not self.target.builds_disturb
        async with contextlib.nullcontext() if beside else self.lease.shared(progress):
            with during("building"):
                yield
