"""One verb: judge a candidate. guard -> build -> check -> time -> attribute; the reference, the candidate and the
comparison run in three different processes."""

from __future__ import annotations

import asyncio
import platform
import time
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ncu_server import authorship, compare, elf, guard, schema
from ncu_server.authorship import Authorship, Ownership
from ncu_server.build import BuildFault
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Report
from ncu_server.memory import Shared
from ncu_server.rig import Rig
from ncu_server.session import BASELINES, COMPILE_TIMEOUT_S, Case, Session
from ncu_server.targets import Probe, Target
from ncu_server.timing import Samples, alternate
from ncu_server.zygote import Child, ChildDied, ChildFault

SAMPLING_S = 1.5
CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be judged; `fresh` asks for new secret inputs in new processes, strict rules for no library work."""

    candidate: str
    problem: str
    target: str
    baselines: tuple[str, ...]
    fresh: bool
    timeout_s: float
    rules: schema.Rules = "default"


@dataclass(frozen=True, slots=True)
class Found:
    """A fault of the candidate."""

    status: schema.Status
    log: str
    error: float | None = None


async def evaluate(rig: Rig, request: Request, report: Report) -> schema.EvaluateResult:
    """Judge one candidate. Raises Refusal for faults that are not the candidate's."""
    if unknown := [b for b in request.baselines if b not in BASELINES]:
        raise Refusal(Code.BAD_ARGUMENT, f"unknown baseline {unknown[0]!r}; there are: {', '.join(BASELINES)}")
    target, probe = rig.target(request.target)
    reading = guard.read(request.candidate)
    if reading.rejected or reading.syntax:
        status: schema.Status = "rejected" if reading.rejected else "build_error"
        return schema.EvaluateResult(status=status, log=reading.rejected or reading.syntax or "")
    async with rig.session(request.problem, target, probe, request.fresh) as session:
        result = await _judge(rig, session, target, probe, request, report)
    return result.model_copy(update={"leads": list(reading.leads), "notes": [*session.notes, *result.notes]})


async def _judge(
    rig: Rig, session: Session, target: Target, probe: Probe, request: Request, report: Report
) -> schema.EvaluateResult:
    lease = rig.lease(target)
    zygote = rig.zygote(target, probe)
    built = await rig.builds.get(zygote, target, probe, request.candidate, lease, request.timeout_s, report)
    if isinstance(built, BuildFault):
        return schema.EvaluateResult(status="timeout" if built.timed_out else "build_error", log=built.log)
    stages = schema.Stages(build_s=round(built.seconds, 3))
    async with lease.alone(report):
        child = await session.candidate(built.directory)
        try:
            return await _run(session, child, built.libraries, target, probe, request, stages, report)
        finally:
            child.close()


async def _run(
    session: Session,
    child: Child,
    libraries: list[dict[str, str]],
    target: Target,
    probe: Probe,
    request: Request,
    stages: schema.Stages,
    report: Report,
) -> schema.EvaluateResult:
    await report("checking")
    began = time.monotonic()
    found = await _check(session, child, libraries, request)
    stages.check_s = round(time.monotonic() - began, 3)
    if found.status != "passed":
        return schema.EvaluateResult(status=found.status, log=found.log, error=found.error, stages=stages)
    await report("timing")
    began = time.monotonic()
    sides = {name: await session.baseline(name) for name in request.baselines} | {CANDIDATE: child}
    samples = await _time(session, sides, target, request.timeout_s)
    if not isinstance(samples, Found):
        samples = await _recheck(session, sides, samples) or samples
    stages.time_s = round(time.monotonic() - began, 3)
    if isinstance(samples, Found):
        return schema.EvaluateResult(status=samples.status, log=samples.log, error=samples.error, stages=stages)
    await report("attributing")
    author = await _attribute(session, child, libraries, request)
    if isinstance(author, Found):
        return schema.EvaluateResult(status=author.status, log=author.log, error=found.error, stages=stages)
    if refusal := author.refusal(request.rules == "strict"):
        return schema.EvaluateResult(
            status="rejected", log=refusal, error=found.error, provenance=author.facts(), stages=stages
        )
    return schema.EvaluateResult(
        status="passed",
        log=found.log,
        error=found.error,
        timing=samples.timing(CANDIDATE),
        versus=[samples.versus(name, CANDIDATE, target.tie) for name in request.baselines],
        provenance=provenance(target, probe) | author.facts() | {"walls": child.walls},
        stages=stages,
    )


async def _check(session: Session, child: Child, libraries: list[dict[str, str]], request: Request) -> Found:
    """Build `ModelNew`, run it once on each secret input set, compare with what is expected."""
    try:
        await child.ask(
            "open",
            [session.arguments.fd],
            request.timeout_s,
            source=request.candidate,
            device=session.target.device,
            parameter_seed=session.parameter_seed,
            arguments=session.arguments.spec,
            libraries=libraries,
        )
        error = 0.0
        for case in session.cases:
            found = await _check_case(session, case, child, request.timeout_s)
            if found.status != "passed":
                return replace(found, log=f"on inputs {case.name}: {found.log}")
            error = max(error, found.error or 0.0)
    except ChildFault as fault:
        return Found("wrong" if fault.kind == "TypeError" and "output" in fault.text else "run_error", fault.trace)
    except ChildDied as died:
        return Found("run_error", str(died))
    except TimeoutError:
        return Found("timeout", f"the candidate's first call took longer than {request.timeout_s:.0f} s")
    return Found("passed", "", error)


async def _check_case(session: Session, case: Case, child: Child, timeout_s: float) -> Found:
    got = Shared("seen")
    try:
        fds = [case.inputs.fd, got.fd]
        ran = await child.ask("check", fds, timeout_s, inputs=case.inputs.spec, effects=case.effects)
        found = await _compare(session, case, case.expected, got, ran["seen"], compare.BOUND)
    finally:
        got.close()
    if found.status == "passed" and not ran["kept"]:
        return replace(found, status="wrong", log="the candidate changes its inputs")
    if found.status == "passed" and case.fresh and not ran["fresh"]:
        return replace(
            found, status="wrong", log="an output lies in the memory of an earlier call's, which is still held"
        )
    return found


async def _compare(
    session: Session, case: Case, want: Shared, got: Shared, spec: dict[str, Any], bound: float
) -> Found:
    tensors = case.tensors[: len(want.spec["tensors"])]
    if fault := compare.structure_fault(want.spec, tensors, spec):
        return Found("wrong", fault)
    judge = await session.judge()
    units = case.units[: len(tensors)]
    results = await judge.ask("compare", [want.fd, got.fd], expected=want.spec, got=spec, units=units, bound=bound)
    fault = compare.value_fault(case.names[: len(tensors)], results, bound)
    return Found("wrong" if fault else "passed", fault or "", compare.largest(results))


async def _time(session: Session, sides: dict[str, Child], target: Target, timeout_s: float) -> Samples | Found:
    try:
        for name, child in sides.items():
            limit = COMPILE_TIMEOUT_S if name == "compile" else timeout_s
            await session.stage(child, limit)
        return await alternate(sides, CANDIDATE, target.tie, SAMPLING_S, max(timeout_s, COMPILE_TIMEOUT_S))
    except ChildFault as fault:
        return Found("run_error", f"in a timed call: {fault.trace}")
    except ChildDied as died:
        return Found("run_error", f"in a timed call, {died}")
    except TimeoutError:
        return Found("timeout", f"the timed calls took longer than {timeout_s:.0f} s")


async def _recheck(session: Session, sides: dict[str, Child], samples: Samples) -> Found | None:
    """Hold the output of the last timed call against the reference's for the same values."""
    if CANDIDATE in samples.overclaimed:
        return Found("suspect", "the candidate claims more time inside its calls than passed outside")
    want, got = Shared("want"), Shared("got")
    try:
        baseline = next(name for name in sides if name != CANDIDATE)
        want.seal(await sides[baseline].ask("snapshot", [want.fd]))
        spec = await sides[CANDIDATE].ask("snapshot", [got.fd])
        found = await _compare(session, session.drawn, want, got, spec, compare.BOUND + 1)
    except (ChildFault, ChildDied) as fault:
        return Found("run_error", f"after the timed calls: {fault}")
    finally:
        want.close()
        got.close()
    return None if found.status == "passed" else Found("wrong", f"in a timed call, {found.log}", found.error)


async def _attribute(
    session: Session, child: Child, libraries: list[dict[str, str]], request: Request
) -> Authorship | Found:
    """Who does the work: the last thing that the candidate's child is asked, since profiling changes its timing."""
    ask = partial(
        child.ask, fds=[session.drawn.inputs.fd], timeout_s=request.timeout_s, inputs=session.drawn.inputs.spec
    )
    try:
        seen = await ask("profile")
    except ChildFault as fault:
        return Found("run_error", f"in a profiled call: {fault.trace}")
    except ChildDied as died:
        return Found("run_error", f"in a profiled call, {died}")
    except TimeoutError:
        return Found("timeout", f"the profiled calls took longer than {request.timeout_s:.0f} s")
    own = await asyncio.to_thread(_ownership, request.candidate, libraries)
    author = authorship.attribute(seen, session.target.device, own)
    if not author.doubtful:
        return author
    try:
        decides = float(await ask("silence"))
    except (ChildFault, ChildDied, TimeoutError):
        decides = 1.0  # without its own kernels it does not even run
    return authorship.settle(author, decides)


def _ownership(source: str, libraries: list[dict[str, str]]) -> Ownership:
    """Raises Refusal where a library that was built is gone or is none."""
    paths = [Path(library["path"]) for library in libraries]
    try:
        symbols = {s for path in paths for s in elf.asked(path).symbols}
        images = tuple(path.read_bytes() for path in paths)
    except (OSError, ValueError) as fault:
        raise Refusal(
            Code.INTERNAL, f"a library of the candidate cannot be read: {fault}; evaluate it again"
        ) from fault
    vendor = tuple(sorted(s for s in symbols if authorship.VENDOR.fullmatch(s)))
    return Ownership(source, images, vendor, guard.read(source).numeric)


def provenance(target: Target, probe: Probe) -> dict[str, str | float]:
    """What stands behind the numbers."""
    return {
        "device": probe.device,
        "arch": probe.arch,
        "threads": float(probe.threads),
        "torch": version("torch"),
        "python": platform.python_version(),
        "protocol": "alternating blocks of at least 5 ms in separate processes, fresh values for each block",
        "tie": target.tie,
    }
