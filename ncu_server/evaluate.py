"""One verb: judge a candidate. guard -> build -> check -> time -> attribute; the reference, the candidate and the
comparison run in three different processes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import platform
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ncu_server import answers, authorship, compare, elf, guard, jitted, peaks, schema
from ncu_server.authorship import Authorship, Ownership
from ncu_server.build import Build, BuildFault
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Report
from ncu_server.limit import Work, floor_us, limit_us
from ncu_server.memory import Shared
from ncu_server.rig import Rig
from ncu_server.session import BASELINES, Case, Session, Sides, ours
from ncu_server.targets import Probe, Target
from ncu_server.telemetry import GAUGES, Gauge
from ncu_server.timing import Samples, alternate, combined
from ncu_server.zygote import Child, ChildError, ChildFault, ChildTimeout, Lost

SAMPLING_S = 1.5
CANDIDATE = "candidate"
UNORDERED = (
    "{:.0f} us of a call's device work are outside the caller's stream order: they begin before what is ahead of the "
    "call is done, or still run when what is behind it begins; launch on the current stream, or join with wait_stream"
)


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


@dataclass(frozen=True, slots=True)
class Run:
    """What timing on one input shape gave, and the roofline bound there in microseconds."""

    case: Case
    samples: Samples
    limit_us: float


@dataclass(frozen=True, slots=True)
class Timed:
    """All input shapes, and what was noticed meanwhile."""

    runs: list[Run]
    notes: list[str]


@dataclass(slots=True)
class Trial:
    """One candidate before the judge: its child beside what it is held against."""

    session: Session
    child: Child
    request: Request
    built: Build
    stages: schema.Stages
    peaks: Callable[[bool], Awaitable[schema.Peaks]]
    uuid: str | None

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
    try:
        result = await _judge(rig, target, probe, request, report)
    except Lost:
        result = await _judge(rig, target, probe, request, report)
    return result.model_copy(update={"leads": list(reading.leads)})


async def _judge(rig: Rig, target: Target, probe: Probe, request: Request, report: Report) -> schema.EvaluateResult:
    stages = schema.Stages()
    try:
        async with contextlib.AsyncExitStack() as stack:
            with _clocked(stages, "prepare_s"):
                session = await stack.enter_async_context(rig.session(request.problem, target, probe, request.fresh))
            trial = await stack.enter_async_context(_tried(rig, session, target, probe, request, stages, report))
            result = await _run(trial, target, probe, report)
    except Objection as objection:
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
    with _clocked(stages, "queue_s"):
        built = await rig.builds.get(
            zygote, target, request.candidate, session.practice, lease, request.timeout_s, report
        )
    stages.build_s = min(round(built.seconds, 3), stages.queue_s)  # less where it was built for an earlier call
    stages.queue_s -= stages.build_s
    if isinstance(built, BuildFault):
        raise Objection("timeout" if built.timed_out else "build_error", built.log)
    async with contextlib.AsyncExitStack() as stack:
        with _clocked(stages, "queue_s"):
            await stack.enter_async_context(lease.alone(report))
        with _clocked(stages, "held_s"):
            child = await session.candidate(built.directory)
            reached = functools.partial(peaks.measured, rig.cache, session, probe)
            try:
                yield Trial(session, child, request, built, stages, reached, probe.uuid)
            finally:
                child.close()


async def _run(trial: Trial, target: Target, probe: Probe, report: Report) -> schema.EvaluateResult:
    await report("checking")
    with _clocked(trial.stages, "open_s"):
        await _open(trial)
    with _clocked(trial.stages, "check_s"):
        error = await _check(trial)
    await report("timing")
    with _clocked(trial.stages, "time_s"):
        timed = await _time(trial)
    await report("attributing")
    with _clocked(trial.stages, "attribute_s"):
        author = await _attribute(trial)
    if refusal := author.refusal(trial.request.rules == "strict"):
        raise Objection("rejected", refusal, error, author.facts())
    shapes = [_shape(one, target.tie) for one in timed.runs]
    whole = combined([one.samples for one in timed.runs])
    return schema.EvaluateResult(
        status="passed",
        error=error,
        timing=whole.timing(CANDIDATE),
        versus=_versus(whole, target.tie),
        shapes=shapes if len(shapes) > 1 else [],
        limit_us=statistics.geometric_mean(shape.limit_us for shape in shapes),
        provenance=provenance(target, probe) | author.facts() | {"walls": trial.child.walls},
        notes=[*timed.notes, author.why] if author.label == "unknown" else timed.notes,
        stages=trial.stages,
    )


def _shape(run: Run, tie: float) -> schema.ShapeResult:
    return schema.ShapeResult(
        inputs=run.case.variant,
        timing=run.samples.timing(CANDIDATE),
        versus=_versus(run.samples, tie),
        limit_us=run.limit_us,
    )


def _versus(samples: Samples, tie: float) -> list[schema.Versus]:
    return [samples.versus(name, CANDIDATE, tie) for name in samples.blocks if name != CANDIDATE]


@contextlib.contextmanager
def _clocked(stages: schema.Stages, name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        setattr(stages, name, round(getattr(stages, name) + time.monotonic() - began, 3))


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
    """Run the candidate once on each secret input set, compare with what is expected; the largest error."""
    return max([await _check_case(trial, case) for case in trial.session.cases])


async def _open(trial: Trial) -> None:
    """Load the candidate, build `ModelNew`, and where a first call compiles let it make that call."""
    session, request, practice = trial.session, trial.request, trial.session.practice
    with _blamed(trial, "in the constructor"):
        await trial.ask(
            "open",
            [session.arguments.fd],
            source=request.candidate,
            device=session.target.device,
            parameter_seed=session.parameter_seed,
            arguments=session.arguments.spec,
            libraries=trial.built.libraries,
            kernels=trial.built.kernels if practice else None,
        )
    if practice:
        with _blamed(trial, "in a first call"):
            await trial.ask("practise", practice.fds[1:], inputs=practice.wire()["inputs"])


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


async def _time(trial: Trial) -> Timed:
    """Take turns with the baselines on each input shape; drop what cannot be believed."""
    session, gauge = trial.session, GAUGES[trial.session.target.device](trial.uuid)
    names = ["eager", *(n for n in trial.request.baselines if n != "eager")]
    runs, notes = [], []
    for case in session.timed:
        sides = await session.sides(names, case)
        notes += [note for note in sides.notes if note not in notes]
        names = list(sides.children)
        samples = await _time_case(trial, case, sides, gauge)
        work, reached = await _counted(trial, case)
        await _believe(trial, case, samples, work, reached)
        runs.append(Run(case, samples, limit_us(work, reached)))
    return Timed(runs, [*notes, *gauge.notes()])


async def _time_case(trial: Trial, case: Case, sides: Sides, gauge: Gauge) -> Samples:
    """Measure; then hold the last timed output against the reference's for the same values."""
    session, timeout_s = trial.session, trial.request.timeout_s
    with _blamed(trial, "in a timed call"):
        await session.stage(trial.child, case, timeout_s)
        everyone = {**sides.children, CANDIDATE: trial.child}
        samples = await alternate(
            everyone, CANDIDATE, sides.rotation, session.target.tie, SAMPLING_S, timeout_s, between=gauge
        )
    if CANDIDATE in samples.overclaimed:
        raise Objection("suspect", "the candidate claims more time inside its calls than passed outside")
    with (
        _blamed(trial, "in a timed call"),
        contextlib.closing(Shared("want")) as want,
        contextlib.closing(Shared("got")) as got,
    ):
        want.seal(await sides.children["eager"].ask("snapshot", [want.fd]))
        spec = answers.spec(await trial.ask("snapshot", [got.fd]))
        await _compare(trial, case, want, got, spec, compare.BOUND + 1, "in a timed call")
    return samples


async def _counted(trial: Trial, case: Case) -> tuple[Work, schema.Peaks]:
    try:
        return await trial.session.work(case), await trial.peaks(False)
    except ChildError as fault:
        raise ours(fault) from fault


async def _believe(trial: Trial, case: Case, samples: Samples, work: Work, reached: schema.Peaks) -> None:
    """Nothing reads its inputs faster than the device can; the device is measured anew before that is said."""
    median_us, cold = samples.timing(CANDIDATE).median_us, samples.cache == "cold"
    device = trial.session.target.device
    if median_us >= floor_us(work, reached, device, cold):
        return
    try:
        floor = floor_us(work, await trial.peaks(True), device, cold)
    except ChildError as fault:
        raise ours(fault) from fault
    if median_us < floor:
        raise Objection(
            "suspect",
            f"on inputs {case.name}: {median_us:.1f} us a call, though reading its inputs alone takes {floor:.1f} us "
            "at the best that this device was seen to do",
        )


async def _attribute(trial: Trial) -> Authorship:
    """Who does the work: the last thing that the candidate's child is asked, since profiling changes its timing."""
    inputs = trial.session.drawn.inputs
    with _blamed(trial, "in a profiled call"):
        try:
            seen = answers.profile(await trial.ask("profile", [inputs.fd], inputs=inputs.spec))
        except ChildFault as fault:
            return authorship.unknown(f"{fault.kind}: {fault.text}")
    if seen["unordered_us"] > 0:
        raise Objection("wrong", UNORDERED.format(seen["unordered_us"] / seen["calls"]))
    own = await asyncio.to_thread(_ownership, trial.request.candidate, trial.built)
    author = authorship.attribute(seen, trial.session.target.device, own)
    if not author.doubtful:
        return author
    try:
        decides = answers.share(await trial.ask("silence", [inputs.fd], inputs=inputs.spec))
    except ChildError:
        decides = 1.0  # without its own kernels it does not even run
    return authorship.settle(author, decides)


def _ownership(source: str, built: Build) -> Ownership:
    """Raises Refusal where a library that was built is gone or is none."""
    paths = [Path(library["path"]) for library in built.libraries]
    try:
        asked = [elf.asked(path).symbols for path in paths]
        images = tuple(path.read_bytes() for path in paths)
    except (OSError, ValueError) as fault:
        raise Refusal(
            Code.INTERNAL, f"a library of the candidate cannot be read: {fault}; evaluate it again"
        ) from fault
    vendor = {name for symbols, image in zip(asked, images, strict=True) for name in authorship.vendors(symbols, image)}
    numeric, kernels = guard.read(source).numeric, jitted.read(Path(built.kernels))
    return Ownership(source, images, tuple(sorted(vendor)), numeric, kernels)


def provenance(target: Target, probe: Probe) -> dict[str, str | float]:
    """What stands behind the numbers."""
    return {
        "device": probe.device,
        "arch": probe.arch,
        "threads": float(probe.threads),
        "torch": version("torch"),
        "python": platform.python_version(),
        "protocol": "alternating blocks of at least 5 ms in separate processes, fresh values for each call",
        "tie": target.tie,
    }
