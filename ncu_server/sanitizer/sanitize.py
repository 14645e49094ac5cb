"""What `sanitize_kernel` does: run a candidate, or a program of the caller's, under a tool of compute-sanitizer."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from ncu_server.compiler.builds import Build, BuildFault, unbuildable
from ncu_server.errors import Code, Refusal
from ncu_server.harness import process
from ncu_server.judge.building import build_for
from ncu_server.judge.problems import Workshop
from ncu_server.machine.lease import Progress
from ncu_server.machine.machine import Machine
from ncu_server.machine.scratch import workplace
from ncu_server.machine.toolkit import find
from ncu_server.sandbox.enter import scrubbed
from ncu_server.sandbox.supervisor import OVER, Ended, Supervisor
from ncu_server.sanitizer.records import SanitizerError, SanitizeResult, Spot, Tool, grouped, records
from ncu_server.worker import handoff

FOUND = 86
"""The exit code by which compute-sanitizer says that it found something."""
SAVED, LOG = "records.xml", "sanitizer.log"
MOST_RECORDS, MOST_SHOWN, LONGEST_LOG = 500, 10, 3000
MOST_SOURCE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """Which tool looks at which kernels (all, or those whose name holds `kernel`), and for how long at most."""

    tool: Tool = "memcheck"
    kernel: str | None = None
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class SanitizeRequest:
    """What is to be run: a candidate for a problem on a target."""

    candidate: str
    problem: str
    target: str
    look: Look


async def sanitize(workshop: Workshop, request: SanitizeRequest, progress: Progress) -> SanitizeResult:
    """Run a candidate. Raises Refusal for what is not its fault."""
    program = find("compute-sanitizer")
    device = workshop.machine.device(request.target)
    if not device.target.hardware.has_nvidia_tools:
        raise Refusal(Code.BAD_ARGUMENT, "compute-sanitizer looks at kernels of the targets cuda and triton alone")
    if fault := unbuildable(request.candidate):
        return _without(request.look.tool, fault.status, fault.log)
    await workshop.machine.require_room()
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        built = await build_for(
            stack, workshop, device, request.candidate, request.problem, request.look.timeout_s, progress
        )
        if isinstance(built, BuildFault):
            return _without(request.look.tool, built.status, built.log)
        await stack.enter_async_context(device.lease.alone(progress))
        await progress(f"running under {request.look.tool}")
        place = await stack.enter_async_context(workplace(device.work))
        job = process.Job(0, request.candidate, built)
        inside = process.inside(device.name, [job], [str(Path(program).resolve().parent.parent)])
        line = process.prepare(place, request.problem, inside, [job], device.target.warms_up)
        environment = scrubbed(os.environ) | dict(device.environment)
        watched = Watched(_leash(device.name, environment, place), place, program, request.look)
        result = await watched.outcome(line, lambda: handoff.read(place))
        located = await asyncio.to_thread(_located, result.errors, built, request.candidate)
    return result.model_copy(update={"errors": located, "seconds": round(time.monotonic() - began, 2)})


def _leash(device: str, environment: dict[str, str], place: Path) -> Supervisor:
    # torch gives tensors out of large blocks; what is beyond a tensor is then still within an allocation.
    own = process.environment(environment, place) | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return Supervisor(place, process.outside(device), own)


async def command(
    machine: Machine, line: Sequence[str], folder: str | None, look: Look, progress: Progress
) -> SanitizeResult:
    """Run a program of the caller's, without walls. Raises Refusal for what is not its fault."""
    program = find("compute-sanitizer")
    if not line or any("\0" in word for word in line):
        raise Refusal(Code.BAD_ARGUMENT, "command is a list of words, the program first", "no shell reads it")
    device = machine.device("cuda")
    async with workplace(device.work) as place, device.lease.alone(progress):
        await progress(f"running under {look.tool}")
        began = time.monotonic()
        supervisor = Supervisor(Path(folder) if folder else place, None, scrubbed(os.environ) | {"TMPDIR": str(place)})
        result = await Watched(supervisor, place, program, look).outcome(line, None)
    return result.model_copy(update={"seconds": round(time.monotonic() - began, 2)})


@dataclass(frozen=True, slots=True)
class Watched:
    """One run of the sanitizer; what it writes lies in `place`."""

    supervisor: Supervisor
    place: Path
    program: str
    look: Look

    async def outcome(self, line: Sequence[str], heard: Callable[[], handoff.Handoff] | None) -> SanitizeResult:
        """What it found. Raises Refusal SANITIZER_FAILED where it did not come to a result."""
        try:
            ended = await self.supervisor.run([*self._options(), *line], self.look.timeout_s, merged=True)
        except TimeoutError:
            return _without(
                self.look.tool, "timeout", f"it took longer than {self.look.timeout_s:.0f} s under {self.look.tool}"
            )
        found, whole = await asyncio.to_thread(self._records)
        said = heard() if heard else None
        fault = self._fault(ended, said)
        if found:
            shown = grouped(found)
            notes = [] if whole else ["the records were cut short: there may be more errors"]
            return SanitizeResult(
                status="errors",
                tool=self.look.tool,
                clean=False,
                errors=shown[:MOST_SHOWN],
                total=len(found),
                left_out=max(0, len(shown) - MOST_SHOWN),
                log=fault or "",
                notes=notes,
            )
        if ended.code == FOUND:
            notes = ["it found errors and did not save them as records; its own words are in `log`"]
            words = self._words(ended)
            return SanitizeResult(status="errors", tool=self.look.tool, clean=False, log=words, notes=notes)
        if fault is not None:
            return _without(self.look.tool, "run_error", fault)
        if ended.code == 0:
            return SanitizeResult(status="clean", tool=self.look.tool, clean=True)
        last = self._words(ended).strip().splitlines()[-1:] or ["nothing"]
        sentence = f"compute-sanitizer ended with exit code {ended.code} and said: {last[0].strip('= ')[:300]}"
        raise Refusal(Code.SANITIZER_FAILED, sentence)

    def _options(self) -> list[str]:
        options = [self.program, "--tool", self.look.tool, "--xml", "--save", str(self.place / SAVED)]
        options += ["--log-file", str(self.place / LOG), "--error-exitcode", str(FOUND)]
        options += ["--print-limit", str(MOST_RECORDS), "--show-backtrace", "device", "--target-processes", "all"]
        if self.look.tool == "memcheck":
            options += ["--report-api-errors", "explicit"]
        return [*options, *(["--kernel-name", f"kernel_substring={self.look.kernel}"] if self.look.kernel else [])]

    def _records(self) -> tuple[list[SanitizerError], bool]:
        try:
            return records((self.place / SAVED).read_bytes())
        except OSError:
            return [], True

    def _fault(self, ended: Ended, said: handoff.Handoff | None) -> str | None:
        """Why the program did not come to its end, if it did not."""
        if ended.code == OVER:
            return "the program used too much memory and was stopped"
        if said is not None:
            if said.faults:
                return next(iter(said.faults.values()))[-LONGEST_LOG:]
            return None if said.done else self._silence(ended)
        return None

    def _silence(self, ended: Ended) -> str | None:
        """A candidate's process that said nothing at all was ended by the candidate, where the sanitizer says 0."""
        words = "the process ended without a word\n"
        return words + self._words(ended)[len(words) - LONGEST_LOG :] if ended.code == 0 else None

    def _words(self, ended: Ended) -> str:
        try:
            log = (self.place / LOG).read_text(errors="replace")
        except OSError:
            log = ""
        return f"{ended.output.decode(errors='replace')[-LONGEST_LOG:]}\n{log[-LONGEST_LOG:]}"[-LONGEST_LOG:]


def _without(tool: Tool, status: str, log: str) -> SanitizeResult:
    return SanitizeResult.model_validate({"status": status, "tool": tool, "clean": False, "log": log[-LONGEST_LOG:]})


def _located(errors: list[SanitizerError], built: Build, candidate: str) -> list[SanitizerError]:
    """The errors with the text of their lines, and where these stand in the candidate."""
    rows = [row.strip() for row in candidate.splitlines()]
    sources: dict[str, list[str]] = {}

    def placed(spot: Spot | None) -> Spot | None:
        if spot is None or spot.file is None or spot.line is None:
            return spot
        if spot.file not in sources:
            sources[spot.file] = _source(Path(built.directory), spot.file)
        lines = sources[spot.file]
        text = lines[spot.line - 1].strip() if spot.line <= len(lines) else None
        line = rows.index(text) + 1 if text and rows.count(text) == 1 else None
        return spot.model_copy(update={"text": text[:160] if text else None, "candidate_line": line})

    return [e.model_copy(update={"at": placed(e.at), "other": placed(e.other)}) for e in errors]


def _source(directory: Path, name: str) -> list[str]:
    """The lines of a file that a build wrote, by its name; Triton's kernels are in the candidate itself."""
    for path in sorted(directory.rglob(Path(name).name)):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_SOURCE_BYTES:
            return path.read_text(errors="replace").splitlines()
    return []
