"""What `compile_kernel` does: CUDA is compiled, with or without a GPU, and what was made is kept under a build_id."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from ncu_server.compiler import demangle, nvcc, occupancy
from ncu_server.compiler.builds import compiler_words, unbuildable
from ncu_server.compiler.diagnostics import diagnostics
from ncu_server.errors import Code, Refusal
from ncu_server.machine.lease import Progress
from ncu_server.machine.machine import Machine, probed
from ncu_server.machine.scratch import workplace
from ncu_server.machine.store import Store
from ncu_server.sandbox.child import ChildDied, ChildFault, ChildTimeout
from ncu_server.sandbox.enter import scrubbed
from ncu_server.sandbox.policy import Policy
from ncu_server.sandbox.supervisor import Supervisor
from ncu_server.targets import TARGETS, Probe, Target, architecture, cuda
from ncu_server.wire.compilation import CompileResult, Diagnostic, Resources
from ncu_server.worker import verbs

DEFAULT_ARCH = "sm_90"
RESULT, WORDS, CANDIDATE, FILE = "result.json", "ptxas.txt", "candidate.py", "source.cu"
BUILD_ID = re.compile(r"\s*([0-9a-f]{16})\s*")
BLOCKS = (128, 256, 512, 1024)
MOST_KERNELS, MOST_ERRORS, MOST_WARNINGS = 10, 14, 6
LONGEST_LOG, LONGEST_NAME = 3000, 160
MOST_FILE_BYTES = 256 << 20
WORDS_S = 20.0


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What is to be compiled: a .cu file's text, or the module of a candidate; `arch` as `sm_90`."""

    source: str
    is_candidate: bool
    arch: str | None = None
    flags: tuple[str, ...] = ()
    lineinfo: bool = True
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Made:
    """What a compilation left: files by name, and what was said. `fault` is there where nothing was made."""

    log: str
    files: Mapping[str, bytes]
    fault: str | None = None
    timed_out: bool = False
    note: str | None = None


async def compile_kernel(machine: Machine, store: Store, request: CompileRequest, progress: Progress) -> CompileResult:
    """Compile. Raises Refusal for what is not the source's fault: no compiler, no such flag or architecture."""
    nvcc.allowed(request.flags)
    compiler = _compiler()
    arch = architecture.full(request.arch or _present() or DEFAULT_ARCH)
    known = await asyncio.to_thread(_codes, compiler)
    if known and arch.rstrip("a") not in known:
        raise Refusal(Code.BAD_ARGUMENT, f"this nvcc does not compile for {arch}", f"it does for: {', '.join(known)}")
    identity = _identity(request, arch, compiler)
    if kept := store.find(f"build-{identity}"):
        return CompileResult.model_validate_json((kept / RESULT).read_bytes())
    if request.is_candidate and (fault := unbuildable(request.source)):
        return CompileResult(status=fault.status, arch=arch, log=fault.log)
    await machine.require_room()
    async with machine.lease(TARGETS["cpu"]).shared(progress):
        await progress(f"compiling for {arch}")
        began = time.monotonic()
        made = await (_candidate if request.is_candidate else _file)(machine, request, arch, compiler)
        seconds = round(time.monotonic() - began, 2)
        result = await _result(request, arch, made, identity)
    result.seconds, result.compiler = seconds, await asyncio.to_thread(cuda.version, compiler)
    if result.status == "compiled":
        words = {RESULT: result.model_dump_json().encode(), WORDS: nvcc.ptxas_words(made.log).encode()}
        source = CANDIDATE if request.is_candidate else FILE
        store.keep(f"build-{identity}", {**made.files, **words, source: request.source.encode()})
    return result


def folder_of(store: Store, build_id: str) -> Path:
    """The folder of a build. Raises Refusal UNKNOWN_BUILD."""
    folder = store.find(f"build-{build_id}")
    if folder is None:
        fix = "call compile_kernel (the oldest go where room is short)"
        raise Refusal(Code.UNKNOWN_BUILD, f"no build {build_id[:40]!r} is kept here", fix)
    return folder


def candidate_of(store: Store, given: str) -> str:
    """The source that is given or, for a build_id, the one that was compiled.

    Raises Refusal: UNKNOWN_BUILD, or BAD_ARGUMENT where a .cu file was compiled, which has no `ModelNew` to call.
    """
    named = BUILD_ID.fullmatch(given)
    if named is None:
        return given
    source = folder_of(store, named[1]) / CANDIDATE
    if not source.exists():
        reason = f"build {named[1]} is of a .cu file and has no ModelNew"
        raise Refusal(Code.BAD_ARGUMENT, reason, "give a program that calls it as `command`")
    return source.read_text()


def _compiler() -> str:
    compiler = probed("cuda").compiler
    if compiler is None:
        fix = "install the CUDA toolkit and put nvcc on PATH, or set CUDA_HOME; no GPU is needed"
        raise Refusal(Code.NO_COMPILER, "there is no nvcc here", fix)
    return compiler


def _present() -> str | None:
    """The architecture of the GPU that is here, if one is."""
    arch = probed("cuda").arch
    return arch if architecture.ARCH.fullmatch(arch) else None


@cache
def _codes(compiler: str) -> tuple[str, ...]:
    """The architectures that this nvcc makes code for; none where it does not say."""
    done = subprocess.run([compiler, "--list-gpu-code"], capture_output=True, text=True, timeout=60, check=False)
    return tuple(sorted(set(architecture.ARCH.findall(done.stdout)), key=lambda code: int(code[3:])))


def _identity(request: CompileRequest, arch: str, compiler: str) -> str:
    what = [request.source, request.is_candidate, arch, request.flags, request.lineinfo, cuda.version(compiler)]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def walled(place: Path, readable: Sequence[str] = ()) -> Supervisor:
    """A supervisor for a program that reads what somebody else wrote, behind the walls of a build."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    environment = scrubbed(os.environ) | {"PATH": path, "TMPDIR": str(place), "HOME": str(place)}
    return Supervisor(place, Policy("build", "cpu", tuple(readable)), environment)


async def _file(machine: Machine, request: CompileRequest, arch: str, compiler: str) -> Made:
    async with workplace(machine.work) as place:
        (place / "source.cu").write_text(request.source)
        line = nvcc.command(compiler, arch, request.flags, request.lineinfo, "source.cu")
        try:
            ended = await walled(place).run(line, request.timeout_s, merged=True)
        except TimeoutError:
            return Made("", {}, f"the compiler took longer than {request.timeout_s:.0f} s", timed_out=True)
        log = ended.output.decode(errors="replace")
        if ended.code:
            return Made(log, {}, log)
        return Made(log, await asyncio.to_thread(_files, [place]))


async def _candidate(machine: Machine, request: CompileRequest, arch: str, compiler: str) -> Made:
    """Import the module where compilers may run, as evaluate_kernel's build does."""
    device = machine.imagined(*_target(compiler))
    async with workplace(machine.work) as place:
        directory = place / "build"
        child = await device.fork_server.spawn("builder", writable=[str(directory)])
        child.scrap = []  # the workplace goes with all there is in it
        fault, libraries = None, []
        try:
            imagined = replace(device.probe, arch=arch.rstrip("a"), compiler=compiler)
            # Builds of candidates keep the lines of their source anyway.
            flags = {"NVCC_APPEND_FLAGS": " ".join([*request.flags, *nvcc.ALWAYS])}
            variables = machine.variables(TARGETS["cuda"], imagined) | flags
            try:
                asked = verbs.Examine(request.source, str(directory), variables)
                answer = await child.ask(asked, timeout_s=request.timeout_s)
                libraries = [library["path"] for library in answer["libraries"]]
            except ChildFault as raised:
                fault = raised
            words = await child.ask(verbs.Words(), timeout_s=WORDS_S)
            said = "\n".join(words)
        except ChildTimeout:
            return Made("", {}, f"the build took longer than {request.timeout_s:.0f} s", timed_out=True)
        except ChildDied as died:
            return Made("", {}, f"while it was imported to be built, {died}")
        finally:
            child.close()
        places = [Path(library).parent for library in libraries] or [directory, *directory.glob("**/")]
        files = await asyncio.to_thread(_files, [p for p in places if p.is_relative_to(directory)])
        if fault is None:
            return Made(said, files)
        log = said if said and last_line(said) in fault.text else f"{said}\n{fault.text}"
        if files and not any(d.severity == "error" for d in diagnostics(log)):
            return Made(log, files, note=f"the module does not load here: {last_line(fault.text)}")
        return Made(log, {}, compiler_words(fault, str(directory)))


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((row.strip() for row in reversed(text.splitlines()) if row.strip()), "")[:300]


def _target(compiler: str) -> tuple[Target, Probe]:
    """The device where there is one, so that its processes serve here too; else an imagined one."""
    found = probed("cuda")
    if found.available:
        return TARGETS["cuda"], found
    return replace(TARGETS["cuda"], name="cuda, compiled only"), Probe(True, "none", DEFAULT_ARCH, 0, compiler)


def _files(places: Sequence[Path]) -> dict[str, bytes]:
    """The cubins and the PTX that --keep left, numbered. Links are not followed."""
    found: dict[str, bytes] = {}
    for kind in ("cubin", "ptx"):
        paths = sorted({path for place in places for path in place.glob(f"*.{kind}")})
        whole = [p for p in paths if p.is_file() and not p.is_symlink() and p.stat().st_size < MOST_FILE_BYTES]
        found |= {f"{number}.{kind}": path.read_bytes() for number, path in enumerate(whole)}
    return found


async def _result(request: CompileRequest, arch: str, made: Made, identity: str) -> CompileResult:
    said = diagnostics(made.log, request.source if request.is_candidate else None)
    if made.fault is not None:
        errors = sum(d.severity == "error" for d in said)
        shown = said[:MOST_ERRORS]
        log = "" if errors else made.fault[-LONGEST_LOG:]
        status: Literal["timeout", "build_error"] = "timeout" if made.timed_out else "build_error"
        left = _left_out(diagnostics=len(said) - len(shown))
        return CompileResult(status=status, arch=arch, diagnostics=shown, left_out=left, log=log)
    kernels = await _named(nvcc.resources(made.log), arch)
    warnings: list[Diagnostic] = said[:MOST_WARNINGS]
    kinds = ["ptxas", *(["sass"] if "0.cubin" in made.files else []), *(["ptx"] if "0.ptx" in made.files else [])]
    return CompileResult(
        status="compiled",
        build_id=identity,
        arch=arch,
        kernels=kernels[:MOST_KERNELS],
        diagnostics=warnings,
        left_out=_left_out(kernels=len(kernels) - MOST_KERNELS, diagnostics=len(said) - len(warnings)),
        resources=[f"ncu://build/{identity}/{kind}" for kind in kinds],
        notes=[*filter(None, [made.note]), *([] if kernels else ["no device code in it: there is no kernel"])],
    )


def _left_out(**counts: int) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count > 0}


async def _named(found: list[Resources], arch: str) -> list[Resources]:
    """With their names as written, the occupancy that is possible, and those that spill first."""
    spoken = await demangle.demangled([kernel.mangled for kernel in found])
    for kernel, name in zip(found, spoken, strict=True):
        kernel.name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        kernel.mangled = kernel.mangled[:LONGEST_NAME]
        shares = {n: occupancy.possible_pct(arch, kernel.registers or 0, n, kernel.shared_bytes or 0) for n in BLOCKS}
        kernel.possible_occupancy_pct = {str(n): round(share, 1) for n, share in shares.items() if share is not None}
    return sorted(found, key=lambda kernel: -(kernel.spill_load_bytes or 0))
