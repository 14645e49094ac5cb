"""One candidate before the judge: who is to blame for what its process does, and the comparison of what it gives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ncu_server.compiler.builds import Build
from ncu_server.errors import Code, Refusal
from ncu_server.judge import replies
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.memory_plan import PROCESS_BYTES, Exhaustion, is_candidates
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.room import NoRoom, free_bytes, others_hold
from ncu_server.judge.trusted import exhausted, ours
from ncu_server.rules import comparison
from ncu_server.rules.precision import Exactness, Precision, joined, worthy
from ncu_server.sandbox import limits
from ncu_server.sandbox.child import Child, ChildError, ChildFault, ChildStarved, ChildTimeout
from ncu_server.sandbox.shared_memory import Shared, Spec
from ncu_server.sandbox.verb import Verb
from ncu_server.wire import evaluation
from ncu_server.wire.compilation import Diagnostic
from ncu_server.worker import verbs

T = TypeVar("T")
TIMES = 2.0  # the memory of the reference's from which on a candidate takes far more
NOT_BUILT = "NotBuilt"  # the class in worker.building.load_inline


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """What is to be judged; `fresh` asks for new secret inputs in new processes, strict rules for no library work. What
    `heeds_compiler` ends before it runs where the compiler's news is bad (see compiler.news)."""

    candidate: str
    problem: str
    target: str
    baselines: tuple[str, ...]
    fresh: bool
    timeout_s: float
    rules: evaluation.Rules = "default"
    heeds_compiler: bool = False


class LateBuild(Exception):  # noqa: N818
    """A candidate builds in its constructor or in a call, and the build has made neither."""


class Objection(Exception):  # noqa: N818
    """A fault of the candidate; judge.evaluate makes a result of it."""

    def __init__(
        self,
        status: evaluation.Status,
        log: str,
        error: Exactness | None = None,
        facts: dict[str, str | float] | None = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__(log)
        self.status, self.log, self.error, self.facts = status, log, error, facts or {}
        self.diagnostics = diagnostics


@dataclass(slots=True)
class Attempt:
    """One candidate before the judge: its child beside what it is held against."""

    prepared: PreparedProblem
    child: Child
    request: EvaluateRequest
    built: Build
    stages: evaluation.Stages
    notes: list[str] = field(default_factory=list)
    memory: evaluation.Memory | None = None

    async def ask(self, verb: Verb[T], memories: Sequence[Shared]) -> T:
        return await self.child.ask(verb, memories, self.request.timeout_s)

    async def ask_beside(
        self, verb: Verb[T], inputs: InputSet | Shared, *more: Shared, child: Child | None = None
    ) -> T:
        """Ask beside inputs, of which the candidate has its own for that time."""
        async with self.prepared.lent(inputs) as lent:
            return await (child or self.child).ask(verb, [lent, *more], self.request.timeout_s)


@contextlib.asynccontextmanager
async def blamed(attempt: Attempt, where: str, alone: bool = False) -> AsyncIterator[None]:
    """Inside, what the candidate's child does wrong is an objection; the same of a process of ours is not. Memory that
    runs out is either's, whoever met it; `alone`: nothing of ours lies beside the candidate. Raises NoRoom too."""
    try:
        yield
    except Refusal as refusal:
        if isinstance(cause := refusal.__cause__, ChildError) and exhausted(cause) and attempt.prepared.plan:
            await _object_if_hog(attempt, cause, where, alone)
        raise
    except ChildError as error:
        if exhausted(error) and attempt.prepared.plan:
            await _object_if_hog(attempt, error, where, alone)
        if error.child is not attempt.child:
            raise ours(error) from error
        if isinstance(error, ChildTimeout):
            raise Objection("timeout", f"{where}: {error}") from error
        if isinstance(error, ChildFault) and error.kind == "UnacceptableOutput":
            raise Objection("wrong", error.text) from error
        if isinstance(error, ChildFault) and error.kind == NOT_BUILT and not attempt.built.called:
            raise LateBuild from error
        if isinstance(error, ChildStarved):
            raise starved(attempt, error, where) from error
        trace = f"\n{error.trace}" if isinstance(error, ChildFault) else ""
        bound = f"; {limits.bound()}" if error.lacked_memory else ""
        raise Objection("run_error", f"{where}: {error}{bound}{trace}") from error


def starved(attempt: Attempt, error: ChildStarved, where: str) -> Objection | Refusal:
    """Whose fault it is that memory ran out with the candidate's process: its own where that was over its bound, or had
    more than TIMES as much as the reference's ever had."""
    beside = limits.peak_bytes(attempt.prepared.eager.pid)
    figures = f"{error}\nthe reference's process, with all inputs, had at most {beside / limits.GIB:.1f} GiB"
    if error.memory_bytes > min(limits.memory_cap(), TIMES * beside):
        return Objection("run_error", f"{where}: {figures}")
    words = f"the machine's memory does not hold candidate and reference: {' '.join(figures.split())}"
    return Refusal(Code.NO_ROOM, words, "end what else uses it, give smaller inputs, or a machine with more memory")


async def _object_if_hog(attempt: Attempt, error: ChildError, where: str, alone: bool) -> None:
    """Object where it is the candidate that takes the memory. Raises NoRoom where it is not."""
    prepared = attempt.prepared
    found = await _exhaustion(attempt, error, alone)
    if is_candidates(found):
        whose = "the candidate" if error.child is attempt.child else "the reference, beside the candidate,"
        raise Objection("run_error", f"{where}: {whose} runs out of memory: {found.sentence}: {error}") from error
    held = await others_hold(prepared)
    words = f"memory ran out {where}, and not by the candidate: {found.sentence}"
    raise NoRoom(f"{words}; others hold memory of the device" if held else words) from error


async def _exhaustion(attempt: Attempt, error: ChildError, alone: bool) -> Exhaustion:
    """What the candidate takes once nothing of ours lies beside it; its process has ended then, which shows that."""
    prepared, plan = attempt.prepared, attempt.prepared.plan
    with contextlib.suppress(ChildError):
        await prepared.release()
    fits, peak = not alone, 0
    if error.child is attempt.child and not alone:
        fits, peak = await _tried_alone(attempt)
    beside = await free_bytes(prepared)
    attempt.child.close()
    await prepared.device.fork_server.cleared()
    room = await free_bytes(prepared)
    return Exhaustion(
        taken=max(peak, room - beside - PROCESS_BYTES),
        room=room,
        fits=fits,
        reference=max(one.working for one in prepared.demands.values()),
        allowed=plan.allowed if plan else 0,
    )


async def _tried_alone(attempt: Attempt) -> tuple[bool, int]:
    """Whether a call comes to its end that has the device to itself, and the bytes that it takes."""
    prepared, drawn = attempt.prepared, attempt.prepared.drawn
    try:
        async with prepared.slot(drawn.room) as got:
            asked = verbs.Check(drawn.inputs.spec, drawn.effects, drawn.room)
            ran = await attempt.ask_beside(asked, drawn, got)
    except (ChildError, Refusal) as again:
        return not exhausted(again.__cause__ if isinstance(again, Refusal) else again), 0
    return True, ran["memory"]["device_bytes"]


async def open_candidate(attempt: Attempt) -> None:
    """Load the candidate in its child, build `ModelNew`, and where a first call compiles let it
    make that call."""
    child = attempt.child
    async with blamed(attempt, "in the constructor", alone=True):
        await _construct(attempt, child)
    async with blamed(attempt, "in a first call", alone=True):
        await _practise(attempt, child)


async def open_another(attempt: Attempt, child: Child) -> None:
    """The same in a process beside the judged one. Raises ChildError, for which nobody is blamed."""
    await _construct(attempt, child)
    await _practise(attempt, child)


async def _construct(attempt: Attempt, child: Child) -> None:
    prepared, built = attempt.prepared, attempt.built
    asked = verbs.OpenCandidate(
        source=attempt.request.candidate,
        device=prepared.target.device,
        parameter_seed=prepared.parameter_seed,
        arguments=prepared.arguments.spec,
        libraries=built.libraries,
        kernels=built.kernels if prepared.target.warms_up else None,
        training=prepared.training,
    )
    await child.ask(asked, [prepared.arguments], attempt.request.timeout_s)


async def _practise(attempt: Attempt, child: Child) -> None:
    if warm_up := attempt.prepared.warm_up:
        await child.ask(verbs.Practise(warm_up.specs), warm_up.memories[1:], attempt.request.timeout_s)


async def compare(
    attempt: Attempt, input_set: InputSet, want: Shared, got: Shared, spec: Spec, bound: float, where: str
) -> Exactness | None:
    """How exact what was got is; None where no float is among it. Raises Objection where it is not what is expected, to
    `bound` of the units of what is allowed (comparison.BOUND)."""
    replies.require_form(attempt.child, spec)
    tensors = input_set.tensors[: len(want.spec["tensors"])]
    if fault := comparison.structure_fault(want.spec, tensors, spec):
        raise Objection("wrong", f"{where}: {fault}")
    replies.require_tree(attempt.child, spec, got)
    judge = await attempt.prepared.judge()
    units = input_set.units[: len(tensors)]
    results = await judge.ask(verbs.Compare(want.spec, spec, units, bound), [want, got])
    behind = input_set.precision[: len(tensors)]
    wider = [one["allowed"] / comparison.BOUND if one else 1.0 for one in behind]
    for row, factor in zip(results, wider, strict=True):
        row["error"] *= factor
    names = input_set.names[: len(tensors)]
    found = joined(
        [
            _exactness(row["error"], one, f"{name} on {input_set.kind}")
            for row, one, name in zip(results, behind, names, strict=True)
        ]
    )
    bounds = [bound * factor for factor in wider]
    if fault := comparison.value_fault(names, results, bounds):
        raise Objection("wrong", f"{where}: {fault}", found)
    return found


def _exactness(error: float, behind: Precision | None, held: str) -> Exactness:
    """An error in units; what has to be equal is exact, or worthy of nothing."""
    if behind:
        return Exactness(error, behind["allowed"], worthy(error, behind), held)
    return Exactness(error, comparison.BOUND, "exact" if error == 0 else None, held)
