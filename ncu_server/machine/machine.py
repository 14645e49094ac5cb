"""What a server owns of its machine: folders, fork servers, leases. Each is started at first use."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from ncu_server import places
from ncu_server.errors import Code, Refusal
from ncu_server.machine import versions
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Lease
from ncu_server.machine.tickets import Tickets
from ncu_server.places import Places
from ncu_server.sandbox.forkserver import ForkServer
from ncu_server.targets import TARGETS, Probe, Target


class Machine:
    """One a server. `cache` keeps what outlives it; everything else goes with `close`.

    Raises Refusal NO_ROOM where no folder can be used.
    """

    def __init__(self, where: Places | Path | None = None) -> None:
        self.places = where if isinstance(where, Places) else places.chosen(where)
        self.cache = self.places.cache
        self.work, self._lock = places.workplace(self.places.building)
        self._aliases = self.work / "names"
        for left in places.left_behind(self.places.building):
            shutil.rmtree(left, ignore_errors=True)
        self._fork_servers: dict[str, ForkServer] = {}
        self._leases: dict[str, Lease] = {}

    def device(self, name: str) -> Device:
        """What runs a target here. Raises Refusal where it is unknown or absent."""
        if name not in TARGETS:
            raise Refusal(Code.UNKNOWN_TARGET, f"unknown target {name!r}", f"there are: {', '.join(TARGETS)}")
        probe = probed(name)
        if not probe.available:
            missing = Code.NO_COMPILER if probe.compiler is None and probe.device != "none" else Code.NO_DEVICE
            code = Code.UNSUPPORTED_VERSION if probe.unsupported else missing
            raise Refusal(code, f"target {name!r} is not available here: {probe.reason}", probe.fix or "")
        return self.imagined(TARGETS[name], probe)

    def imagined(self, target: Target, probe: Probe) -> Device:
        """The device of a target as if this machine had what `probe` says."""
        fork_server, environment = self._fork_server(target, probe), self._environment(target, probe)
        return Device(target, probe, fork_server, self.lease(target), environment, self.cache, self.work)

    async def require_room(self) -> None:
        """Raises Refusal NO_ROOM where the disk is full and stays so when what ended children wrote has gone."""
        if places.short_of_room(self.places):
            for fork_server in self._fork_servers.values():
                await fork_server.cleared()
        if full := places.short_of_room(self.places):
            sentence = f"less than {places.MIN_ROOM >> 20} MiB are free for builds and caches in {full}"
            raise Refusal(Code.NO_ROOM, sentence, "make room there, or set XDG_CACHE_HOME to a place that has some")

    def _fork_server(self, target: Target, probe: Probe) -> ForkServer:
        if target.name not in self._fork_servers:
            self._fork_servers[target.name] = ForkServer(self.work, self._environment(target, probe), target.device)
        return self._fork_servers[target.name]

    def _environment(self, target: Target, probe: Probe) -> dict[str, str]:
        """What the processes of a target find in their environment, beside what is passed on."""
        threads = probe.threads or len(os.sched_getaffinity(0))
        names = places.aliased(self._aliases, _installed())
        building = self.places.building
        return {
            "OMP_NUM_THREADS": str(threads),
            "PATH": f"{places.renamed(str(Path(sys.executable).parent), names)}:{os.environ.get('PATH', os.defpath)}",
            "TORCHINDUCTOR_CACHE_DIR": str(building / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            places.ALIASES: str(self._aliases),
            # tvm_ffi asks torch.cuda.is_available() when imported; without NVML that would initialise CUDA, and a
            # process that did so cannot fork workers.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            **({"NCU_SERVER_KEEPING": str(building / "keeping")} if target.hardware.keeps_memory else {}),
            **self.variables(target, probe),
        }

    def variables(self, target: Target, probe: Probe) -> dict[str, str]:
        """What a target wants in the environment of its processes, its toolkit under a plain name."""
        found = target.environment(probe)
        if home := found.get("CUDA_HOME"):
            name = places.renamed(home, places.aliased(self._aliases, [home]))
            found = {variable: value.replace(home, name) for variable, value in found.items()}
        return found

    def lease(self, target: Target) -> Lease:
        """The lease of the device that a target runs on."""
        device = (probed(target.name).uuid if target.name in TARGETS else None) or target.device
        if device not in self._leases:
            self._leases[device] = Lease(len(os.sched_getaffinity(0)), Tickets(device))
        return self._leases[device]

    def close(self) -> None:
        """End all children and remove the work directory."""
        for fork_server in self._fork_servers.values():
            fork_server.close()
        shutil.rmtree(self.work, ignore_errors=True)
        self._lock.close()


@functools.cache
def probed(name: str) -> Probe:
    """What this machine has of a target; asked once a server."""
    found = TARGETS[name].probe()
    refusal = versions.refusal(TARGETS[name].packages) if found.available else None
    if refusal is None:
        return found
    reason, fix = refusal
    return replace(found, available=False, unsupported=True, reason=reason, fix=fix)


def _installed() -> list[str]:
    """The folders whose files compilers are given: the interpreter's, packages', this package's."""
    return [sys.prefix, sys.base_prefix, sys.exec_prefix, str(places.ROOT), *(p for p in sys.path if p)]
