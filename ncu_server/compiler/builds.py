"""Builds candidates apart from the device, each in a directory of its own, at most one a core at once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import re
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ncu_server.compiler.diagnostics import diagnostics, spoken
from ncu_server.machine.activity import during
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Lease, Progress
from ncu_server.rules import lint, triton_cache
from ncu_server.sandbox import limits
from ncu_server.sandbox.child import Child, ChildDied, ChildFault, ChildTimeout
from ncu_server.sandbox.shared_memory import WarmUp
from ncu_server.wire.compilation import Diagnostic
from ncu_server.worker import answers, verbs

LOG_LENGTH = 6000
MOST_DIAGNOSTICS = 14
GONE_S = 5.0
STARVED = "the machine ran out of memory while this was compiled, and Linux ended a process"
WORDS_S, MOST_WORDS = 20.0, 1 << 18
MOST_BYTES = 1 << 30  # of a library: it is read whole to see what it calls


@dataclass(frozen=True, slots=True)
class Build:
    """The libraries of a candidate that was built, where they lie, and how long it took (0 where it was there).

    `called`: its constructor and its calls were made too, and not its import alone. `words` are what compilers said.
    """

    libraries: list[answers.Library]
    directory: str
    seconds: float
    called: bool = False
    words: str = ""

    @property
    def kernels(self) -> str:
        """Where Triton keeps what it compiled."""
        return str(Path(self.directory) / triton_cache.KEPT_IN)


@dataclass(frozen=True, slots=True)
class BuildFault:
    """Why a candidate was not built: the compiler's words, the exception that its import raised, or a rule that it
    breaks; what a compiler said of a line also as data."""

    log: str
    seconds: float = 0.0
    status: Literal["rejected", "build_error", "timeout"] = "build_error"
    diagnostics: tuple[Diagnostic, ...] = ()


def unbuildable(source: str) -> BuildFault | None:
    """Why a candidate is not built at all: a rule that it breaks, or that it is no Python."""
    reading = lint.read(source)
    if reading.rejected:
        return BuildFault(reading.rejected, status="rejected")
    return BuildFault(reading.syntax) if reading.syntax else None


class Builds:
    """Remembers what it built, so that the same source is compiled once for a target (and problem, where the build
    calls it)."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._done: dict[str, Build] = {}
        self._numbers = itertools.count(1)
        self._pool = Lease(len(os.sched_getaffinity(0)))

    def called(self, device: Device, source: str, problem: str) -> Build | None:
        """What calls for this problem have built before."""
        found = self._done.get(_key(device, source, problem))
        return replace(found, seconds=0.0) if found else None

    async def get(
        self, device: Device, source: str, warm_up: WarmUp | None, timeout_s: float, progress: Progress
    ) -> Build | BuildFault:
        """Build `source`, with the calls of `warm-up` where there is one, or give what was built before."""
        if refused := unbuildable(source):
            return refused
        key = _key(device, source, warm_up.problem if warm_up else "")
        if key in self._done:
            return replace(self._done[key], seconds=0.0)
        async with self._room(device, progress):
            await progress("building")
            began, kills = time.monotonic(), limits.kernel_kills()
            directory = str(self._work / f"build-{next(self._numbers)}")  # never one that another may be clearing
            child = await device.fork_server.spawn("builder", writable=[directory])
            try:
                libraries = (await child.ask(verbs.Build(source, directory), timeout_s=timeout_s))["libraries"]
                words = "\n".join(await child.ask(verbs.Words(), timeout_s=WORDS_S))[:MOST_WORDS]
                if warm_up:
                    libraries += await _warm_up(child, warm_up, device, timeout_s, progress)
            except ChildFault as fault:
                said = tuple(diagnostics(fault.text, source)[:MOST_DIAGNOSTICS]) if _is_compilers(fault) else ()
                log = compiler_words(fault, directory)
                if fault.lacked_memory:
                    log = f"{log}\n{limits.bound()}"
                elif _is_compilers(fault) and limits.kernel_kills() > kills:
                    log = f"{STARVED}\n{log}"
                return BuildFault(log, time.monotonic() - began, diagnostics=said)
            except ChildTimeout:
                return BuildFault(f"the build took longer than {timeout_s:.0f} s", timeout_s, "timeout")
            except ChildDied as died:
                how = "called" if warm_up and not device.target.warms_up else "imported"
                return BuildFault(f"while it was {how} to be built, {died}", time.monotonic() - began)
            else:
                child.scrap = []
            finally:
                child.close()
            seconds = time.monotonic() - began
        try:
            inside = all(_lies_in(Path(directory), Path(library["path"])) for library in libraries)
        except (ValueError, OSError):
            inside = False
        if not inside:
            return BuildFault("the build's process answered nonsense", seconds)
        built = Build(libraries, directory, seconds, warm_up is not None, words)
        self._done[key] = built
        return built

    @contextlib.asynccontextmanager
    async def _room(self, device: Device, progress: Progress) -> AsyncIterator[None]:
        async with (device.lease if device.target.builds_disturb else self._pool).shared(progress):
            with during("building"):
                yield


def _lies_in(directory: Path, path: Path) -> bool:
    """Whether `path` is a plain file of at most MOST_BYTES below a directory. Raises OSError where it is nothing."""
    found = path.lstat()
    below = path.resolve().is_relative_to(directory.resolve())
    return below and stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES


def _key(device: Device, source: str, problem: str) -> str:
    return hashlib.sha256(f"{device.target.name}\0{problem}\0{source}".encode()).hexdigest()[:20]


async def _warm_up(
    child: Child, warm_up: WarmUp, device: Device, timeout_s: float, progress: Progress
) -> list[answers.Library]:
    """Let the child call what it built, on the device but never beside a timing; alone where others left no room. The
    libraries that it made.

    What else befalls it befalls the run as well, and is judged there: the build stands. Raises ChildDied where no
    first call has to compile, so that it alone knows what was made.
    """
    asked = verbs.Warm(warm_up.device, warm_up.parameter_seed, warm_up.arguments.spec, warm_up.specs, warm_up.training)
    if device.target.builds_disturb:  # whoever builds has its share of the device
        return (await child.ask(asked, warm_up.memories, timeout_s))["libraries"]
    libraries: list[answers.Library] = []
    for held in (device.lease.shared, device.lease.alone):
        async with held(progress):
            with contextlib.ExitStack() as stack:
                if device.target.warms_up:
                    stack.enter_context(contextlib.suppress(ChildDied))
                warmed = await child.ask(asked, warm_up.memories, timeout_s)
                libraries += warmed["libraries"]
                if not warmed["ended"]:
                    continue
            child.scrap = []
            child.close()
            await asyncio.wait({child.ended}, timeout=GONE_S)  # leaving the device takes its time too
            break
    return libraries


def _is_compilers(fault: ChildFault) -> bool:
    """Whether a compiler spoke, which ninja always tells."""
    return "ninja" in fault.text


def compiler_words(fault: ChildFault, directory: str) -> str:
    """What the compiler said, without ninja's echo of its command lines; the traceback where no compiler spoke."""
    if not _is_compilers(fault):
        return fault.trace
    words = re.sub(re.escape(directory) + r"/[^/\s]+/", "", "\n".join(spoken(fault.text))).strip()
    return words if len(words) <= LOG_LENGTH else words[:LOG_LENGTH] + "\n... (cut)"
