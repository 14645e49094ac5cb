"""What `profile_kernel` does: say why kernels take as long as they do. Several candidates share a process; a better
rung of the ladder (counters, then a timeline, then what the compiler made) is left only where it does not hold, and the
result says so."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from ncu_server.compiler.builds import Build, BuildFault
from ncu_server.errors import Code, Refusal
from ncu_server.harness import process
from ncu_server.judge import peaks
from ncu_server.judge.building import build_for
from ncu_server.judge.problems import Workshop
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Progress
from ncu_server.machine.machine import Machine
from ncu_server.machine.scratch import workplace
from ncu_server.profiler import collect, fallbacks, ncu, render, reports
from ncu_server.profiler.reports import Reports
from ncu_server.sandbox.enter import scrubbed
from ncu_server.sandbox.policy import Policy
from ncu_server.sandbox.supervisor import Supervisor
from ncu_server.wire import profiling
from ncu_server.wire.profiling import Profiled, ProfileResult, Refused
from ncu_server.worker import handoff

MOST_CANDIDATES = 8
LADDER = (
    *(Code.COUNTERS_DENIED, Code.COUNTERS_BUSY, Code.LOCKED, Code.NCU_FAILED),
    *(Code.NO_PROFILER, Code.NO_READER, Code.READER_TOO_OLD, Code.NO_DEVICE),
)
"""Refusals that leave the lower rungs standing."""
NO_COUNTERS = ("the cpu target has no counters to read and no timeline", "look at the inner loops, and at the times")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What is to be profiled: candidates for a problem."""

    candidates: tuple[str, ...]
    problem: str
    target: str
    selection: ncu.Selection = field(default_factory=ncu.Selection)
    timeout_s: float = 300.0
    arch: str | None = None


async def profile(workshop: Workshop, kept: Reports, request: ProfileRequest, progress: Progress) -> ProfileResult:
    """Profile candidates. Raises Refusal for faults that are not theirs and that no lower rung helps with."""
    if not 1 <= len(request.candidates) <= MOST_CANDIDATES:
        raise Refusal(Code.BAD_ARGUMENT, f"{len(request.candidates)} candidates", f"give one to {MOST_CANDIDATES}")
    began = time.monotonic()
    device, refused = _device(workshop.machine, request)
    await workshop.machine.require_room()
    async with AsyncExitStack() as stack:
        builds = (
            build_for(stack, workshop, device, one, request.problem, request.timeout_s, progress)
            for one in request.candidates
        )
        built = await asyncio.gather(*builds)
        seconds = {"build_s": round(time.monotonic() - began, 2)}
        batch = Batch(device, kept, request, progress)
        found = {i: _fault(i, b) for i, b in enumerate(built) if isinstance(b, BuildFault)}
        jobs = [process.Job(i, request.candidates[i], b) for i, b in enumerate(built) if isinstance(b, Build)]
        began = time.monotonic()
        if jobs:
            found |= await _climb(batch, jobs, refused)
    seconds["profile_s"] = round(time.monotonic() - began, 2)
    return ProfileResult(
        profiles=[found[i] for i in sorted(found)],
        refused=batch.refused,
        seconds=seconds,
        notes=device.lease.notes,
    )


async def command(
    machine: Machine,
    kept: Reports,
    line: Sequence[str],
    folder: str | None,
    selection: ncu.Selection,
    timeout_s: float,
    progress: Progress,
) -> ProfileResult:
    """Profile a program of the caller's. Raises Refusal; there is no lower rung for it."""
    if not line or any("\0" in word for word in line):
        raise Refusal(Code.BAD_ARGUMENT, "command is a list of words, the program first", "no shell reads it")
    device = machine.device("cuda")
    async with workplace(device.work) as place:
        await progress("starting ncu")
        began = time.monotonic()
        environment = scrubbed(os.environ) | {"TMPDIR": str(place)}
        supervisor = Supervisor(Path(folder) if folder else place, None, environment)
        got = await collect.collect(supervisor, device.lease, selection, line, place, True, timeout_s, progress)
        if got.raw is None or not got.kernels:
            raise got.nothing
        about = _about(device, got, selection, None)
        entry = await asyncio.to_thread(kept.add, got.raw, got.kernels, about, got.heard.log)
        found = await asyncio.to_thread(render.report, entry)
        seconds = {"profile_s": round(time.monotonic() - began, 2)}
    done = Profiled(target=" ".join(line)[:120], status="profiled", report=found)
    return ProfileResult(profiles=[done], seconds=seconds, notes=device.lease.notes)


@dataclass(slots=True)
class Batch:
    """Candidates on their way up the ladder; `refused` says which rungs did not hold."""

    device: Device
    kept: Reports
    request: ProfileRequest
    progress: Progress
    refused: list[Refused] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return scrubbed(os.environ) | dict(self.device.environment)

    def step_down(self, rung: profiling.Rung, refusal: Refusal) -> None:
        """Note that a rung does not hold. Raises the refusal where it says nothing against the lower ones."""
        if refusal.code not in LADDER:
            raise refusal
        fix = refusal.fix or "see the reason"
        self.refused.append(Refused(rung=rung, code=refusal.code, reason=refusal.reason, fix=fix))


def _device(machine: Machine, request: ProfileRequest) -> tuple[Device, Refusal | None]:
    """The device, with a refusal where it has no profiler; where there is none but a compiler, an imagined one."""
    try:
        device = machine.device(request.target)
        return device, None if device.target.hardware.has_nvidia_tools else Refusal(Code.NO_PROFILER, *NO_COUNTERS)
    except Refusal as refusal:
        imagined = fallbacks.imagined(request.target, request.arch) if refusal.code is Code.NO_DEVICE else None
        if imagined is None:
            raise
        return machine.imagined(*imagined), refusal


def _fault(number: int, fault: BuildFault) -> Profiled:
    rejected = fault.status == "rejected"
    return Profiled(target=_name(number), status="rejected" if rejected else "build_error", log=fault.log)


def _name(number: int) -> str:
    return handoff.RANGE.format(number)


async def _climb(batch: Batch, jobs: list[process.Job], refused: Refusal | None) -> dict[int, Profiled]:
    """The best rung that holds. Raises the refusal of the last where none does."""
    if refused is not None:
        batch.step_down("counters", refused)
        batch.step_down("timeline", refused)
        return await _compiled(batch, jobs)
    try:
        return await _counted(batch, jobs)
    except Refusal as refusal:
        batch.step_down("counters", refusal)
    try:
        problem, around = batch.request.problem, batch.environment
        async with batch.device.lease.alone(batch.progress):
            return await fallbacks.timeline(batch.device, around, problem, jobs, batch.progress)
    except Refusal as refusal:
        batch.step_down("timeline", refusal)
    return await _compiled(batch, jobs)


async def _compiled(batch: Batch, jobs: list[process.Job]) -> dict[int, Profiled]:
    try:
        return await fallbacks.static(batch.device.target, batch.device.probe.arch, jobs)
    except Refusal:
        first = batch.refused[0]  # what would help most
        raise Refusal(Code(first.code), first.reason, first.fix) from None


async def _counted(batch: Batch, jobs: list[process.Job]) -> dict[int, Profiled]:
    """All in one process; those that it did not come to, one by one."""
    found = await _batch(batch, jobs)
    for job in jobs:
        if job.number not in found:
            await batch.progress(f"profiling {_name(job.number)} alone: the process that held all ended early")
            found |= await _batch(batch, [job])
    return found


async def _batch(batch: Batch, jobs: list[process.Job]) -> dict[int, Profiled]:
    """What one run of ncu gives; a lone candidate always gets an answer."""
    await batch.progress(f"starting ncu for {len(jobs)} candidate{'s' if len(jobs) > 1 else ''}")
    device = batch.device.name
    inside = process.inside(device, jobs, [str(Path(collect.program()).parent)])
    async with workplace(batch.device.work) as place:
        got = await _run(batch, jobs, place, process.outside(device), inside)
        notes = []
        if got.raw is None and not got.heard.connected:
            # It did not come as far as the device, let alone to a candidate: the walls may be to blame.
            notes = [f"profiled without walls: behind them ncu did not reach the device ({got.last})"]
            got = await _run(batch, jobs, place, process.none(device), process.none(device))
        said = handoff.read(place)
        lone = len(jobs) == 1
        parts = [(job.number, await _part(batch, job, got, said, notes, lone)) for job in jobs]
    return {number: part for number, part in parts if part is not None}


async def _run(
    batch: Batch, jobs: list[process.Job], place: Path, outside: Policy, inside: Policy
) -> collect.Collected:
    request = batch.request
    line = process.prepare(place, request.problem, inside, jobs, batch.device.target.warms_up)
    selection = replace(request.selection, count=request.selection.count * len(jobs))
    supervisor = Supervisor(place, outside, process.environment(batch.environment, place))
    lease, progress = batch.device.lease, batch.progress
    return await collect.collect(supervisor, lease, selection, line, place, False, request.timeout_s, progress)


async def _part(
    batch: Batch, job: process.Job, got: collect.Collected, said: handoff.Handoff, notes: list[str], lone: bool
) -> Profiled | None:
    """One candidate's part of a run; None where it was not reached and may be tried again."""
    name = _name(job.number)
    if job.number in said.faults:
        return Profiled(target=name, status="run_error", log=said.faults[job.number])
    mine = [kernel for kernel in got.kernels if name in kernel.ranges or lone]
    if got.raw is None or not mine:
        if not lone:
            return None
        if job.number in said.done:
            return Profiled(target=name, status="no_kernel", log=got.nothing.sentence)
        if got.heard.connected:
            words = f"the process ended with code {got.code} before the candidate's call did"
            return Profiled(target=name, status="run_error", log=f"{words}\n{said.output}".strip())
        raise got.nothing
    about = _about(batch.device, got, batch.request.selection, job.source)
    about.notes = notes
    entry = await asyncio.to_thread(batch.kept.add, got.raw, mine, about, got.heard.log)
    found = await asyncio.to_thread(render.report, entry)
    return Profiled(target=name, status="profiled", report=found)


def _about(device: Device, got: collect.Collected, selection: ncu.Selection, source: str | None) -> reports.About:
    probe, reached = device.probe, peaks.load(device)
    passes = max((count for _, count in got.heard.kernels), default=0)
    return reports.About(
        writer=got.writer,
        device=probe.device,
        arch=probe.arch,
        collected=f"{selection.words}; {passes} passes a launch" if passes else selection.words,
        source=source,
        copy_gbps=reached.copy_gbps if reached else None,
    )
