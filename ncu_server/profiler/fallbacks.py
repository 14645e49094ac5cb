"""The lower rungs of the ladder, where counters cannot be had: a timeline of launches, and the compiler's own word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ncu_server.compiler import occupancy
from ncu_server.errors import Code, Refusal
from ncu_server.harness import process
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Progress
from ncu_server.machine.machine import probed
from ncu_server.machine.scratch import workplace
from ncu_server.profiler import static_cpu, static_cuda
from ncu_server.sandbox.supervisor import Supervisor
from ncu_server.targets import TARGETS, Probe, Target
from ncu_server.wire import profiling
from ncu_server.wire.profiling import KernelDigest, KernelRow, Missing, Occupancy, Profiled, StaticKernel
from ncu_server.worker import handoff

TIMEOUT_S = 180.0
MOST_ROWS, MOST_KERNELS, TRACE_BYTES = 12, 6, 256 << 20
NO_COUNTERS = "times and launches only: what limits a kernel cannot be told without counters"
COMPILED = "what the compiler made, and arithmetic on it; nothing was run"
DEFAULT_ARCH = "sm_90"


def imagined(name: str, arch: str | None) -> tuple[Target, Probe] | None:
    """A device to compile for where there is none; None where the target cannot be compiled for without one."""
    compiler = probed(name).compiler if TARGETS[name].build_arch else None
    wanted = arch or DEFAULT_ARCH
    if compiler is None:
        return None
    if wanted not in occupancy.SMS:
        raise Refusal(Code.BAD_ARGUMENT, f"unknown arch {wanted!r}", f"there are: {', '.join(occupancy.SMS)}")
    return replace(TARGETS[name], name=f"{name} for {wanted}"), Probe(True, "none", wanted, 0, compiler)


async def timeline(
    device: Device, environment: Mapping[str, str], problem: str, jobs: list[process.Job], progress: Progress
) -> dict[int, Profiled]:
    """Names, times and launches of the kernels in one call, by torch's profiler.

    Raises Refusal NO_PROFILER where it sees no kernel either.
    """
    found, target = {}, device.target
    for job in jobs:
        await progress(f"tracing {handoff.RANGE.format(job.number)}")
        async with workplace(device.work) as place:
            inside = process.inside(target.device, [job])
            line = process.prepare(place, problem, inside, [job], target.warms_up, timeline=True)
            supervisor = Supervisor(place, process.outside(target.device), process.environment(environment, place))
            try:
                ended = await supervisor.run(line, TIMEOUT_S, merged=True)
            except TimeoutError:
                raise Refusal(Code.TOOK_TOO_LONG, f"a traced call took longer than {TIMEOUT_S:.0f} s") from None
            found[job.number] = await _traced(job, place, ended.code)
    return found


async def _traced(job: process.Job, place: Path, code: int) -> Profiled:
    name, said = handoff.RANGE.format(job.number), handoff.read(place)
    if job.number in said.faults:
        return Profiled(target=name, status="run_error", log=said.faults[job.number])
    if job.number in said.begun - said.done:
        words = f"the process ended with code {code} before the candidate's call did"
        return Profiled(target=name, status="run_error", log=f"{words}\n{said.output}".strip())
    trace = place / handoff.TRACE.format(job.number)
    launches = launches_in(trace.read_text(errors="replace")) if trace.exists() else []
    if not launches:
        last = (said.output.strip().splitlines() or ["nothing"])[-1][:300]
        raise Refusal(
            Code.NO_PROFILER,
            f"torch's profiler (CUPTI) saw no kernel and said: {last}",
            "allow it access to the device",
        )
    return Profiled(target=name, status="profiled", report=timeline_report(launches))


def launches_in(trace: str) -> list[Mapping[str, Any]]:
    """The kernels' events of a trace in Chrome's format. A candidate's process wrote it: what is none is left out."""
    try:
        events = json.loads(trace[:TRACE_BYTES])["traceEvents"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if not isinstance(events, list):
        return []
    kernels = [e for e in events if isinstance(e, dict) and e.get("cat") == "kernel"]
    return [e for e in kernels if isinstance(e.get("dur"), int | float) and isinstance(e.get("args"), dict)]


def timeline_report(launches: list[Mapping[str, Any]]) -> profiling.KernelReport:
    """A report of what a timeline says."""
    total = sum(e["dur"] for e in launches)
    rows = [
        KernelRow(
            index=i,
            name=str(e.get("name"))[:80],
            duration_us=round(e["dur"], 2),
            share_pct=round(100 * e["dur"] / total, 1) if total else None,
            bound="unknown",
        )
        for i, e in enumerate(launches)
    ]
    longest = max(launches, key=lambda e: float(e["dur"]))
    return profiling.KernelReport(
        report_id=None,
        rung="timeline",
        kernels=sorted(rows, key=lambda row: -(row.duration_us or 0))[:MOST_ROWS] if len(rows) > 1 else [],
        digest=_digest(longest),
        notes=[NO_COUNTERS],
    )


def _digest(event: Mapping[str, Any]) -> KernelDigest:
    args = event["args"]

    def size(of: str) -> float | None:
        sides = args.get(of)
        if not isinstance(sides, list) or not all(isinstance(side, int) for side in sides):
            return None
        product = 1
        for side in sides:
            product *= side
        return float(product)

    def value(of: str) -> float | None:
        given = args.get(of)
        return float(given) if isinstance(given, int | float) else None

    return KernelDigest(
        name=str(event.get("name")),
        duration_us=round(float(event["dur"]), 3),
        clock_ghz=None,
        bound="unknown",
        why=NO_COUNTERS,
        occupancy=Occupancy(
            possible_pct=value("est. achieved occupancy %"),
            registers_per_thread=value("registers per thread"),
            shared_bytes_per_block=value("shared memory"),
            threads_per_block=size("block"),
            blocks=size("grid"),
        ),
        confidence="low",
        doubts=[NO_COUNTERS],
        missing=[Missing(metric="all counters", reason="ncu could not be used; see refused")],
    )


async def static(target: Target, arch: str, jobs: list[process.Job]) -> dict[int, Profiled]:
    """What the compiler made of each candidate's kernels. Raises Refusal NO_PROFILER where nothing can read it."""
    found = {}
    for job in jobs:
        libraries = [Path(library["path"]) for library in job.build.libraries]
        if target.hardware.has_nvidia_tools:
            kernels = [k for library in libraries for k in await static_cuda.kernels(library, arch)]
        else:
            kernels = [k for library in libraries for k in await static_cpu.functions(library)]
        found[job.number] = _compiled(job, arch, kernels)
    return found


def _compiled(job: process.Job, arch: str, kernels: list[StaticKernel]) -> Profiled:
    notes = [COMPILED]
    if len(kernels) > MOST_KERNELS:
        notes.append(f"{len(kernels)} kernels; the {MOST_KERNELS} with most instructions are listed")
    by_size = sorted(kernels, key=lambda kernel: -sum(kernel.instructions.values()))[:MOST_KERNELS]
    report = profiling.KernelReport(report_id=None, rung="static", arch=arch, static=by_size, notes=notes)
    name = handoff.RANGE.format(job.number)
    if not kernels:
        return Profiled(target=name, status="no_kernel", log="no library of the candidate holds a kernel")
    return Profiled(target=name, status="profiled", report=report)
