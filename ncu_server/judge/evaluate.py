"""What `evaluate_kernel` does: judge a candidate. lint -> build -> check -> time -> authorship; the reference, the
candidate and the comparison run in three different processes."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import statistics
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from ncu_server.compiler.builds import Build, BuildFault, unbuildable
from ncu_server.compiler.news import bad_news
from ncu_server.errors import Code, Refusal
from ncu_server.judge import memory
from ncu_server.judge.benchmark import CANDIDATE, ShapeRun, time_candidate
from ncu_server.judge.building import build_by_calls, lacks_libraries
from ncu_server.judge.candidate import Attempt, EvaluateRequest, LateBuild, Objection, blamed, open_candidate
from ncu_server.judge.checking import check
from ncu_server.judge.compiling import compile_ahead
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.interleave import Samples, combine
from ncu_server.judge.modes import BASELINES
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.problems import Workshop
from ncu_server.judge.room import NoRoom, patiently, plan_again
from ncu_server.judge.tails import stands_for_the_rest
from ncu_server.judge.trusted import until_kept
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Progress
from ncu_server.rules import authorship, elf, lint, triton_cache
from ncu_server.rules.authorship import Authorship, Ownership
from ncu_server.rules.precision import Exactness
from ncu_server.sandbox.child import ChildError, ChildFault
from ncu_server.sandbox.shared_memory import WarmUp
from ncu_server.wire import evaluation
from ncu_server.worker import answers, verbs

T = TypeVar("T")
UNORDERED = (
    "{:.0f} us of a call's device work are outside the caller's stream order: they begin before what is ahead of the "
    "call is done, or still run when what is behind it begins; launch on the current stream, or join with wait_stream"
)


async def evaluate(workshop: Workshop, request: EvaluateRequest, progress: Progress) -> evaluation.EvaluateResult:
    """Judge one candidate. Raises Refusal for faults that are not the candidate's.

    Where processes of ours are lost on the way, everything is set up anew and the candidate judged again.
    """
    if unknown := [b for b in request.baselines if b not in BASELINES]:
        raise Refusal(Code.BAD_ARGUMENT, f"unknown baseline {unknown[0]!r}", f"there are: {', '.join(BASELINES)}")
    judging = Judging(workshop, workshop.machine.device(request.target), request, progress)
    if fault := await asyncio.to_thread(unbuildable, request.candidate):
        return evaluation.EvaluateResult(status=fault.status, log=fault.log, provenance={**where(judging.device)})
    await workshop.machine.require_room()
    result = await until_kept(lambda: patiently(lambda: _judged(judging)))
    warnings = [*lint.read(request.candidate).warnings, *memory.warnings(result.memory)]
    return result.model_copy(update={"warnings": warnings, "leads": warnings})


@dataclass(frozen=True, slots=True)
class Judging:
    """One candidate on its way: what is asked, of what, and who hears how far it is."""

    workshop: Workshop
    device: Device
    request: EvaluateRequest
    progress: Progress
    by_calls: bool = False  # whether it builds in its constructor or in a call


async def _judged(judging: Judging) -> evaluation.EvaluateResult:
    try:
        return await _judge(judging)
    except LateBuild:
        return await _judge(replace(judging, by_calls=True))
    except NoRoom:
        await judging.workshop.problems.make_room(judging.device)  # for the next try
        raise


async def _judge(judging: Judging) -> evaluation.EvaluateResult:
    stages = evaluation.Stages()
    try:
        async with contextlib.AsyncExitStack() as stack:
            prepared, built = await _ready(stack, judging, stages)
            attempt = await stack.enter_async_context(_tried(judging, prepared, built, stages))
            result = await _run(attempt, judging.progress)
    except Objection as objection:
        await judging.workshop.machine.require_room()
        return evaluation.EvaluateResult(
            status=objection.status,
            log=objection.log,
            **_exactness(objection.error),
            provenance={**where(judging.device), **objection.facts},
            diagnostics=list(objection.diagnostics),
            stages=stages,
        )
    plan = prepared.plan
    notes = [*prepared.notes, *(plan.notes if plan else []), *judging.device.lease.notes, *result.notes]
    return result.model_copy(update={"notes": notes, "memory_plan": plan.name if plan else None})


async def _ready(
    stack: contextlib.AsyncExitStack, judging: Judging, stages: evaluation.Stages
) -> tuple[PreparedProblem, Build]:
    """The problem prepared, until `stack` ends, and the candidate built: at the same time, where a build neither calls
    the candidate nor disturbs the device."""
    workshop, device, request = judging.workshop, judging.device, judging.request
    by_calls = judging.by_calls or workshop.builds.called(device, request.candidate, request.problem) is not None
    apart, began = by_calls or device.target.builds_disturb or device.target.warms_up, time.monotonic()

    async def build(warm_up: WarmUp | None) -> Build | BuildFault:
        return await workshop.builds.get(device, request.candidate, warm_up, request.timeout_s, judging.progress)

    async def rebuild() -> Build | BuildFault:
        return await build_by_calls(workshop, prepared, request.candidate, request.timeout_s, judging.progress)

    async with contextlib.nullcontext() if apart else _beside(build(None)) as building:
        with _clocked(stages, "prepare_s"):
            problem = workshop.problems.prepared(request.problem, device, request.fresh, judging.progress)
            prepared = await stack.enter_async_context(problem)
            await compile_ahead(prepared, request.baselines, judging.progress)
        built = await (rebuild() if by_calls else building or build(prepared.warm_up))
    if lacks_libraries(built):
        built = await rebuild()
    took = time.monotonic() - began
    stages.build_s = round(built.seconds, 3)
    explained = stages.prepare_s + stages.build_s if apart else max(stages.prepare_s, stages.build_s)
    stages.queue_s = round(max(0.0, took - explained), 3)
    if isinstance(built, BuildFault):
        raise Objection(built.status, built.log, diagnostics=built.diagnostics)
    if request.heeds_compiler and (news := bad_news(built.words)):
        raise Objection("poor_build", "\n".join(news))
    return prepared, built


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Work that goes on beside what follows, and not after it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _tried(
    judging: Judging, prepared: PreparedProblem, built: Build, stages: evaluation.Stages
) -> AsyncIterator[Attempt]:
    """The candidate in a child of its own, with the device to itself."""
    async with contextlib.AsyncExitStack() as stack:
        with _clocked(stages, "queue_s"):
            await stack.enter_async_context(judging.device.lease.alone(judging.progress))
        with _clocked(stages, "held_s"):
            await plan_again(prepared, len({"eager", *judging.request.baselines}))
            child = await prepared.candidate(built.directory)
            try:
                yield Attempt(prepared, child, judging.request, built, stages)
            finally:
                child.close()
                await prepared.clear()


async def _run(attempt: Attempt, progress: Progress) -> evaluation.EvaluateResult:
    await progress("checking")
    with _clocked(attempt.stages, "open_s"):
        await open_candidate(attempt)
    with _clocked(attempt.stages, "check_s"):
        error = await check(attempt)
    await progress("timing")
    with _clocked(attempt.stages, "time_s"):
        raced = await time_candidate(attempt)
    await progress("attributing")
    with _clocked(attempt.stages, "attribute_s"):
        author = await _attribute(attempt)
    if refusal := author.refusal(attempt.request.rules == "strict"):
        raise Objection("rejected", refusal, error, author.facts())
    shapes = [_shape(one) for one in raced.runs]
    whole = combine([one.samples for one in raced.runs])
    return evaluation.EvaluateResult(
        status="passed",
        **_exactness(error),
        memory=attempt.memory,
        timing=whole.timing(CANDIDATE),
        versus=_versus(whole),
        shapes=shapes if len(shapes) > 1 else [],
        limit_us=_mean([shape.limit_us for shape in shapes]),
        limit_rate="; ".join(dict.fromkeys(one.limit.rate for one in raced.runs)),
        provenance={
            **provenance(attempt.prepared.device),
            **raced.facts,
            **author.facts(),
            "walls": attempt.child.walls,
        },
        notes=[*attempt.notes, *raced.notes, *([author.why] if author.label == "unknown" else [])],
        stages=attempt.stages,
    )


def _exactness(found: Exactness | None) -> dict[str, Any]:
    """An error, what is allowed and what it is worthy of, by the names of EvaluateResult."""
    if not found:
        return {}
    return {
        "error": found.error,
        "allowed": found.allowed,
        "held": found.held,
        "arithmetic": found.arithmetic,
        "precision": found.sentence,
    }


def _mean(limits: list[float]) -> float:
    """The geometric mean; 0 where one has nothing to move."""
    return statistics.geometric_mean(limits) if all(limits) else 0.0


def _shape(run: ShapeRun) -> evaluation.ShapeResult:
    return evaluation.ShapeResult(
        inputs=run.input_set.variant,
        timing=run.samples.timing(CANDIDATE),
        versus=_versus(run.samples),
        limit_us=run.limit.us,
    )


def _versus(samples: Samples) -> list[evaluation.Versus]:
    return [samples.versus(name, CANDIDATE) for name in samples.blocks if name != CANDIDATE]


@contextlib.contextmanager
def _clocked(stages: evaluation.Stages, name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        setattr(stages, name, round(getattr(stages, name) + time.monotonic() - began, 3))


async def _attribute(attempt: Attempt) -> Authorship:
    """Who does the work: the last thing that the candidate's child is asked, since profiling changes its timing."""
    drawn = attempt.prepared.drawn
    async with blamed(attempt, "in a profiled call"):
        try:
            seen = await attempt.ask_beside(verbs.Profile(drawn.inputs.spec, drawn.effects), drawn)
        except ChildFault as fault:
            return authorship.unknown(f"{fault.kind}: {fault.text}")
    if seen["unordered_us"] > 0:
        raise Objection("wrong", UNORDERED.format(seen["unordered_us"] / seen["calls"]))
    own = await asyncio.to_thread(_ownership, attempt.request.candidate, attempt.built)
    anew = None if seen["own_started"] or not attempt.built.libraries else await _seen_anew(attempt, drawn)
    evidence, elements = attempt.prepared.target.hardware.evidence, sum(drawn.elements)
    author = authorship.attribute(anew or seen, evidence, own, elements)
    # What was timed left the work to others: a model made later cannot speak for it.
    if author.label == "library" and author.own and not anew and not author.doubtful:
        author = replace(author, doubtful=await stands_for_the_rest(attempt, seen, own))
    if not author.doubtful or (anew and author.label == "library"):
        return author
    return await _silenced(attempt, author, (anew or seen)["own_ops_us"] > 0)


async def _seen_anew(attempt: Attempt, drawn: InputSet) -> answers.Profiled | None:
    """The profile of a model made anew; None where it cannot be made, or calls nothing of its own either."""
    async with blamed(attempt, "in a profiled call of a model made anew"):
        try:
            seen = await attempt.ask_beside(verbs.ProfileAnew(drawn.inputs.spec, drawn.effects), drawn)
        except ChildFault:
            return None
    return seen if seen["own_started"] else None


async def _silenced(attempt: Attempt, doubtful: Authorship, operators: bool) -> Authorship:
    """The label after a run without the candidate's own kernels, held against a run with them; both of a model made
    anew, and one that answers otherwise because it is not the first gains nothing. `operators` of its own, which cannot
    be silenced, may be all that it has."""
    drawn, inputs = attempt.prepared.drawn, attempt.prepared.drawn.inputs
    async with blamed(attempt, "in a call of a model made anew"):
        try:
            started = await attempt.ask_beside(verbs.Remake(inputs.spec), drawn)
        except ChildFault as fault:
            return authorship.unsettled(doubtful, f"a model made anew does not run: {fault.kind}: {fault.text}")
    if operators and not started:
        return authorship.unsettled(doubtful, "operators of its own cannot be silenced")
    try:
        decides = await attempt.ask_beside(verbs.Silence(inputs.spec, doubtful.moves), drawn)
    except ChildError:
        return authorship.unsettled(doubtful, "without its own kernels it does not run")
    return authorship.settle(doubtful, decides)


def _ownership(source: str, built: Build) -> Ownership:
    """Raises Refusal where a library that was built is gone or is none."""
    paths = [Path(library["path"]) for library in built.libraries]
    try:
        asked = [elf.read_symbols(path).symbols for path in paths]
        images = tuple(path.read_bytes() for path in paths)
    except (OSError, ValueError) as fault:
        raise Refusal(
            Code.INTERNAL, f"a library of the candidate cannot be read: {fault}", "evaluate it again"
        ) from fault
    vendor = {name for symbols, image in zip(asked, images, strict=True) for name in authorship.vendors(symbols, image)}
    numeric, kernels = lint.read(source).numeric, triton_cache.read(Path(built.kernels))
    return Ownership(source, images, tuple(sorted(vendor)), numeric, kernels)


def where(device: Device) -> dict[str, str]:
    """Which device it is, of all that there are."""
    probe = device.probe
    return {"device": probe.device, "host": platform.node(), **({"uuid": probe.uuid} if probe.uuid else {})}


def provenance(device: Device) -> dict[str, str | float]:
    """What stands behind the numbers."""
    probe = device.probe
    return {
        **where(device),
        "arch": probe.arch,
        "threads": float(probe.threads),
        "torch": version("torch"),
        "python": platform.python_version(),
        **({"toolkit": probe.toolkit} if probe.toolkit else {}),
        "protocol": "alternating blocks of 5 ms or 400 calls in separate processes, fresh values for each call",
        "tie": device.target.resolution.tie,
    }
