"""Builds candidates apart from the device, each in a directory of its own, at most one a core at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ncu_server.lease import Lease, Report
from ncu_server.targets import Probe, Target
from ncu_server.zygote import ChildDied, ChildFault, ChildTimeout, Zygote

LOG_LENGTH = 6000
LIBRARIES = TypeAdapter(list[dict[str, str]])


@dataclass(frozen=True, slots=True)
class Build:
    """The libraries of a candidate that was built, where they lie, and how long it took."""

    libraries: list[dict[str, str]]
    directory: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BuildFault:
    """Why a candidate could not be built: the compiler's words, or the exception that its import raised."""

    log: str
    timed_out: bool = False


class Builds:
    """Remembers what it built, so that the same source is compiled once for a target."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._done: dict[str, Build] = {}
        self._pool = Lease(len(os.sched_getaffinity(0)))

    async def get(
        self, zygote: Zygote, target: Target, probe: Probe, source: str, lease: Lease, timeout_s: float, report: Report
    ) -> Build | BuildFault:
        """Build `source`, or give what was built before."""
        key = hashlib.sha256(f"{target.name}\0{source}".encode()).hexdigest()[:20]
        if key in self._done:
            return self._done[key]
        async with self._room(target, lease, report):
            await report("building")
            began = time.monotonic()
            directory = str(self._work / f"build-{key}")
            child = await zygote.spawn("builder", writable=[directory])
            child.scrap = [Path(directory)]
            environment = target.environment(probe)
            try:
                answer = await child.ask(
                    "build", timeout_s=timeout_s, source=source, directory=directory, environment=environment
                )
            except ChildFault as fault:
                return BuildFault(compiler_words(fault, directory))
            except ChildTimeout:
                return BuildFault(f"the build took longer than {timeout_s:.0f} s", timed_out=True)
            except ChildDied as died:
                return BuildFault(f"while it was imported to be built, {died}")
            else:
                child.scrap = []
            finally:
                child.close()
        try:
            libraries = LIBRARIES.validate_python(answer["libraries"])
        except (ValidationError, KeyError, TypeError):
            return BuildFault("the build's process answered nonsense")
        built = Build(libraries, directory, time.monotonic() - began)
        self._done[key] = built
        return built

    @contextlib.asynccontextmanager
    async def _room(self, target: Target, lease: Lease, report: Report) -> AsyncIterator[None]:
        async with (lease if target.builds_disturb else self._pool).shared(report):
            yield


def compiler_words(fault: ChildFault, directory: str) -> str:
    """What the compiler said, without ninja's echo of its command lines; the traceback where no compiler spoke."""
    if "ninja" not in fault.text:
        return fault.trace
    noise = ("[", "FAILED:", "ninja", "stdout:", "stderr:")
    kept = [row for row in fault.text.splitlines() if not row.startswith(noise) and " -o " not in row]
    words = re.sub(re.escape(directory) + r"/[^/\s]+/", "", "\n".join(kept)).strip()
    return words if len(words) <= LOG_LENGTH else words[:LOG_LENGTH] + "\n... (cut)"
