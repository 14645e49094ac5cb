"""One verb: judge a candidate. guard -> build -> check -> time -> attribute; the reference, the candidate and the
comparison run in three different processes."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ncu_server import answers, authorship, compare, elf, guard, schema
from ncu_server.authorship import Authorship, Ownership
from ncu_server.build import BuildFault
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Report
from ncu_server.memory import Shared
from ncu_server.rig import Rig
from ncu_server.session import BASELINES, Case, Session, ours
from ncu_server.targets import Probe, Target
from ncu_server.timing import Samples, alternate
from ncu_server.zygote import Child, ChildError, ChildFault, ChildTimeout, Lost

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


class Objection(Exception):  # noqa: N818
    """A fault of the candidate; it leaves this module as a result."""

    def __init__(
        self, status: schema.Status, log: str, error: float | None = None, facts: dict[str, str | float] | None = None
    ) -> None:
        super().__init__(log)
        self.status, self.log, self.error, self.facts = status, log, error, facts or {}


@dataclass(slots=True)
class Trial:
    """One candidate before the judge: its child beside what it is held against."""

    session: Session
    child: Child
    request: Request
    libraries: list[dict[str, str]]
    stages: schema.Stages

    async def ask(self, verb: str, fds: list[int], **arguments: Any) -> Any:
        return await self.child.ask(verb, fds, self.request.timeout_s, **arguments)


async def evaluate(rig: Rig, request: Request, report: Report) -> schema.EvaluateResult:
    """Judge one candidate. Raises Refusal for faults that are not the candidate's.

    Where processes of ours are lost on the way, everything is set up anew and the candidate judged once more.
    """
    if unknown := [b for b in request.baselines if b not in BASELINES]:
        raise Refusal(Code.BAD_ARGUMENT, f"unknown baseline {unknown[0]!r}; there are: {', '.join(BASELINES)}")
    target, probe = rig.target(request.target)
    reading = guard.read(request.candidate)
    if reading.rejected or reading.syntax:
        status: schema.Status = "rejected" if reading.rejected else "build_error"
        return schema.EvaluateResult(status=status, log=reading.rejected or reading.syntax or "")
    await rig.require_room()
    try:
        result = await _judge(rig, target, probe, request, report)
    except Lost:
        result = await _judge(rig, target, probe, request, report)
    return result.model_copy(update={"leads": list(reading.leads)})


async def _judge(rig: Rig, target: Target, probe: Probe, request: Request, report: Report) -> schema.EvaluateResult:
    stages = schema.Stages()
    try:
        async with (
            rig.session(request.problem, target, probe, request.fresh) as session,
            _tried(rig, session, target, probe, request, stages, report) as trial,
        ):
            result = await _run(trial, target, probe, report)
    except Objection as objection:
        await rig.require_room()
        return schema.EvaluateResult(
            status=objection.status,
            log=objection.log,
            error=objection.error,
            provenance=objection.facts,
            stages=stages,
        )
    return result.model_copy(update={"notes": [*session.notes, *rig.lease(target).notes, *result.notes]})


@contextlib.asynccontextmanager
async def _tried(
    rig: Rig,
    session: Session,
    target: Target,
    probe: Probe,
    request: Request,
    stages: schema.Stages,
    report: Report,
) -> AsyncIterator[Trial]:
    """The candidate built, and in a child of its own with the device to itself."""
    lease, zygote = rig.lease(target), rig.zygote(target, probe)
    built = await rig.builds.get(zygote, target, probe, request.candidate, lease, request.timeout_s, report)
    if isinstance(built, BuildFault):
        raise Objection("timeout" if built.timed_out else "build_error", built.log)
    stages.build_s = round(built.seconds, 3)
    async with lease.alone(report):
        child = await session.candidate(built.directory)
        try:
            yield Trial(session, child, request, built.libraries, stages)
        finally:
            child.close()


async def _run(trial: Trial, target: Target, probe: Probe, report: Report) -> schema.EvaluateResult:
    await report("checking")
    with _clocked(trial.stages, "check_s"):
        error = await _check(trial)
    await report("timing")
    with _clocked(trial.stages, "time_s"):
        baselines, notes = await trial.session.sides(trial.request.baselines)
        samples = await _time(trial, baselines, target)
    await report("attributing")
    author = await _attribute(trial)
    if refusal := author.refusal(trial.request.rules == "strict"):
        raise Objection("rejected", refusal, error, author.facts())
    return schema.EvaluateResult(
        status="passed",
        error=error,
        timing=samples.timing(CANDIDATE),
        versus=[samples.versus(name, CANDIDATE, target.tie) for name in baselines],
        provenance=provenance(target, probe) | author.facts() | {"walls": trial.child.walls},
        notes=[*notes, author.why] if author.label == "unknown" else notes,
        stages=trial.stages,
    )


@contextlib.contextmanager
def _clocked(stages: schema.Stages, name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        setattr(stages, name, round(time.monotonic() - began, 3))


@contextlib.contextmanager
def _blamed(trial: Trial, where: str) -> Iterator[None]:
    """Inside, what the candidate's child does wrong is an objection; the same of a process of ours is not."""
    try:
        yield
    except ChildError as error:
        if error.child is not trial.child:
            raise ours(error) from error
        if isinstance(error, ChildTimeout):
            raise Objection("timeout", f"{where}: {error}") from error
        if isinstance(error, ChildFault) and error.kind == "UnacceptableOutput":
            raise Objection("wrong", error.text) from error
        words = error.trace if isinstance(error, ChildFault) else str(error)
        raise Objection("run_error", f"{where}: {words}") from error
    except answers.Malformed as malformed:
        raise Objection("run_error", f"{where}: the candidate's process answered nonsense: {malformed}") from malformed


async def _check(trial: Trial) -> float:
    """Build `ModelNew`, run it once on each secret input set, compare with what is expected; the largest error."""
    session, request = trial.session, trial.request
    with _blamed(trial, "in the constructor"):
        await trial.ask(
            "open",
            [session.arguments.fd],
            source=request.candidate,
            device=session.target.device,
            parameter_seed=session.parameter_seed,
            arguments=session.arguments.spec,
            libraries=trial.libraries,
        )
    return max([await _check_case(trial, case) for case in session.cases])


async def _check_case(trial: Trial, case: Case) -> float:
    with _blamed(trial, f"on inputs {case.name}"), contextlib.closing(Shared("seen")) as got:
        fds = [case.inputs.fd, got.fd]
        said = await trial.ask("check", fds, inputs=case.inputs.spec, effects=case.effects)
        ran = answers.checked(said)
        where = f"on inputs {case.name}"
        error = await _compare(trial, case, case.expected, got, ran.seen, compare.BOUND, where)
    if not ran.kept:
        raise Objection("wrong", f"{where}: the candidate changes its inputs", error)
    if case.fresh and not ran.fresh:
        words = "an output lies in the memory of an earlier call's, which is still held"
        raise Objection("wrong", f"{where}: {words}", error)
    return error


async def _compare(
    trial: Trial, case: Case, want: Shared, got: Shared, spec: dict[str, Any], bound: float, where: str
) -> float:
    tensors = case.tensors[: len(want.spec["tensors"])]
    if fault := compare.structure_fault(want.spec, tensors, spec):
        raise Objection("wrong", f"{where}: {fault}")
    answers.held(spec, got.freeze())
    judge = await trial.session.judge()
    units = case.units[: len(tensors)]
    results = await judge.ask("compare", [want.fd, got.fd], expected=want.spec, got=spec, units=units, bound=bound)
    error = compare.largest(results)
    if fault := compare.value_fault(case.names[: len(tensors)], results, bound):
        raise Objection("wrong", f"{where}: {fault}", error)
    return error


async def _time(trial: Trial, baselines: dict[str, Child], target: Target) -> Samples:
    """Take turns with the baselines; then hold the last timed output against the reference's for the same values."""
    with _blamed(trial, "in a timed call"):
        await trial.session.stage(trial.child, trial.request.timeout_s)
        sides = {**baselines, CANDIDATE: trial.child}
        samples = await alternate(sides, CANDIDATE, target.tie, SAMPLING_S, trial.request.timeout_s)
    if CANDIDATE in samples.overclaimed:
        raise Objection("suspect", "the candidate claims more time inside its calls than passed outside")
    with (
        _blamed(trial, "in a timed call"),
        contextlib.closing(Shared("want")) as want,
        contextlib.closing(Shared("got")) as got,
    ):
        want.seal(await next(iter(baselines.values())).ask("snapshot", [want.fd]))
        spec = answers.spec(await trial.ask("snapshot", [got.fd]))
        await _compare(trial, trial.session.drawn, want, got, spec, compare.BOUND + 1, "in a timed call")
    return samples


async def _attribute(trial: Trial) -> Authorship:
    """Who does the work: the last thing that the candidate's child is asked, since profiling changes its timing."""
    inputs = trial.session.drawn.inputs
    with _blamed(trial, "in a profiled call"):
        try:
            seen = answers.profile(await trial.ask("profile", [inputs.fd], inputs=inputs.spec))
        except ChildFault as fault:
            return authorship.unknown(f"{fault.kind}: {fault.text}")
    own = await asyncio.to_thread(_ownership, trial.request.candidate, trial.libraries)
    author = authorship.attribute(seen, trial.session.target.device, own)
    if not author.doubtful:
        return author
    try:
        decides = answers.share(await trial.ask("silence", [inputs.fd], inputs=inputs.spec))
    except ChildError:
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
