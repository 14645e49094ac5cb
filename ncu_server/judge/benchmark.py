"""A candidate takes turns with the baselines on each input shape, and its times are believed or not."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ncu_server.judge import peaks
from ncu_server.judge.candidate import Attempt, Objection, blamed, compare, open_another
from ncu_server.judge.first_sight import LONGER, times_longer
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.interleave import MAX_PAIRS, MIN_PAIRS, Samples, alternate, time_visits
from ncu_server.judge.modes import Sides
from ncu_server.judge.product_ways import limit_of, ways_of
from ncu_server.judge.roofline import Limit, floor_us
from ncu_server.judge.trusted import exhausted, ours, trusted
from ncu_server.rules import comparison
from ncu_server.sandbox.child import Child, ChildError
from ncu_server.sandbox.shared_memory import Shared, Spec
from ncu_server.sandbox.verb import Verb
from ncu_server.targets.target import Gauge
from ncu_server.wire import evaluation
from ncu_server.worker import answers, timing_verbs

T = TypeVar("T")
CANDIDATE = "candidate"
WARM_UPS = 8  # calls in a process that is only to time a first sight
AUDITS = 3  # of the first MIN_PAIRS pairs of blocks


@dataclass(frozen=True, slots=True)
class ShapeRun:
    """What timing on one input shape gave, and the roofline bound there."""

    input_set: InputSet
    samples: Samples
    limit: Limit


@dataclass(frozen=True, slots=True)
class Timed:
    """All input shapes, and what was noticed meanwhile, in words and as numbers."""

    runs: list[ShapeRun]
    notes: list[str]
    facts: dict[str, float]


async def time_candidate(attempt: Attempt) -> Timed:
    """Take turns with the baselines on each input shape; drop what cannot be believed."""
    prepared = attempt.prepared
    gauge = prepared.target.hardware.gauge(prepared.device.probe.uuid)
    names = ["eager", *(n for n in attempt.request.baselines if n != "eager")]
    runs, notes = [], []
    for input_set in prepared.timed:
        sides = await _sides(attempt, names, input_set)
        await _stage(attempt, input_set)
        notes += [note for note in sides.notes if note not in notes]
        names = list(sides.children)
        samples = await _time_case(attempt, input_set, sides, gauge)
        if prepared.is_giant:
            async with blamed(attempt, "after its timed calls"):
                await attempt.ask(timing_verbs.Unstage(), [])
        await prepared.release()
        work, reached = await _counted(attempt, input_set)
        await _believe(attempt, input_set, samples, work, reached)
        async with blamed(attempt, "after its timed calls"):
            found = await ways_of(prepared, input_set, work, reached)
        runs.append(ShapeRun(input_set, samples, limit_of(work, reached, found)))
    return Timed(runs, [*notes, *gauge.notes()], gauge.facts())


async def _sides(attempt: Attempt, names: Sequence[str], input_set: InputSet) -> Sides:
    """The baselines beside the candidate, which cannot be rid of one by leaving it no memory."""
    async with blamed(attempt, "in a timed call"):
        sides = await attempt.prepared.sides(names, input_set)
        for fault in filter(exhausted, sides.failed.values()):
            raise fault
    return sides


async def _stage(attempt: Attempt, input_set: InputSet) -> None:
    prepared = attempt.prepared
    async with blamed(attempt, "in a timed call"), prepared.lent_for_timing(input_set) as lent:
        await prepared.stage(attempt.child, lent, input_set.effects, attempt.request.timeout_s)


async def _time_case(attempt: Attempt, input_set: InputSet, sides: Sides, gauge: Gauge) -> Samples:
    """Measure; then hold the last kept output against the reference's for the same values."""
    prepared, timeout_s = attempt.prepared, attempt.request.timeout_s
    async with blamed(attempt, "in a timed call"):
        everyone, audited = {**sides.children, CANDIDATE: attempt.child}, audits()

        async def audit(pair: int) -> None:
            if pair in audited:
                await _audited(attempt, input_set, sides.children["eager"])

        samples = await alternate(
            everyone,
            CANDIDATE,
            sides.rotation,
            prepared.target.resolution,
            prepared.target.hardware.sampling_s,
            timeout_s,
            between=gauge,
            audit=audit,
        )
    if CANDIDATE in samples.overclaimed:
        raise Objection("suspect", "the candidate claims more time inside its calls than passed outside")
    if CANDIDATE in samples.underclaimed:
        raise Objection("suspect", "the candidate claims less time inside its calls than it computed in them")
    await _held(attempt, input_set, sides.children["eager"])
    if not sides.rotation.changes and prepared.unseen_sets(input_set):
        async with prepared.present(input_set):
            await _unremembered(attempt, input_set, sides)
    return samples


async def _unremembered(attempt: Attempt, input_set: InputSet, sides: Sides) -> None:
    """Object where inputs at first sight take longer than the same soon after, or known ones, each time anew. Of values
    that all change at each call nothing can be kept."""
    longer = await times_longer(_Looks(attempt, input_set, sides), CANDIDATE)
    if longer > LONGER:
        words = f"a call takes {longer:.1f} times longer for inputs at first sight than for such as it knows"
        raise Objection("suspect", f"{words}: earlier results are kept, and their time does not count")


@dataclass
class _Looks:
    """What first_sight.Looks asks, of processes that were timed on an input set."""

    attempt: Attempt
    input_set: InputSet
    sides: Sides
    tried: bool = False

    @property
    def group(self) -> int:
        """How many calls share a reading of the clock."""
        draws = len(self.input_set.unseen)
        return draws if draws <= self.sides.rotation.sets else 1

    @property
    def slack_us(self) -> float:
        return self.attempt.prepared.target.hardware.first_sight_us / self.group

    async def draw(self) -> bool:
        if self.tried or not self.input_set.unseen:
            await self.attempt.prepared.draw_unseen(self.input_set)
        self.tried = True
        return bool(self.input_set.unseen)

    async def known(self) -> dict[str, list[float]]:
        async with blamed(self.attempt, "in a timed call"):
            return await self._visits(self.attempt.child, [self.input_set.inputs])

    async def unseen(self) -> dict[str, list[float]]:
        async with blamed(self.attempt, "in a timed call"):
            visits = await self._visits(self.attempt.child, self.input_set.unseen)
        await _audited(self.attempt, self.input_set, self.sides.children["eager"])
        return visits

    async def anew(self) -> dict[str, list[float]] | None:
        child = await self.attempt.prepared.candidate(self.attempt.built.directory)
        with contextlib.closing(child):
            try:
                await self._set_up(child)
                return await self._visits(child, [self.input_set.inputs])
            except ChildError as error:
                if error.child is not child:
                    raise ours(error) from error
                return None

    async def _set_up(self, child: Child) -> None:
        """Bring another process of the candidate as far as the timed one is, without the draw that this knows."""
        timeout_s, other = self.attempt.request.timeout_s, self.input_set.unseen[0]
        await open_another(self.attempt, child)
        async with self.attempt.prepared.lent(other) as lent:
            await self.attempt.prepared.stage(child, lent, self.input_set.effects, timeout_s)
        await child.ask(timing_verbs.Block(secrets.randbits(48), WARM_UPS), timeout_s=timeout_s)

    async def _visits(self, child: Child, draws: list[Shared]) -> dict[str, list[float]]:
        timeout_s, sides = self.attempt.request.timeout_s, {"eager": self.sides.children["eager"], CANDIDATE: child}
        taken = timing_verbs.TakeUnseen([one.spec for one in draws])
        async with contextlib.AsyncExitStack() as stack:
            lent = [await stack.enter_async_context(self.attempt.prepared.lent(one)) for one in draws]
            await sides["eager"].ask(taken, draws, timeout_s)
            await child.ask(taken, lent, timeout_s)
        return await time_visits(sides, len(draws), self.group, timeout_s)


def audits() -> frozenset[int]:
    """The pairs of blocks after which a candidate has to show what it computed, unforeseeable to it: some of the first,
    and one whenever their number has doubled."""
    drawn = secrets.SystemRandom()
    starts = [MIN_PAIRS << n for n in range(MAX_PAIRS.bit_length()) if MIN_PAIRS << n < MAX_PAIRS]
    later = [drawn.randrange(start, min(2 * start, MAX_PAIRS)) for start in starts]
    return frozenset([*drawn.sample(range(MIN_PAIRS), AUDITS), *later])


async def _audited(attempt: Attempt, input_set: InputSet, eager: Child) -> None:
    """Compare a stretch of what the kept calls gave, drawn only now, and let both rest again."""
    await _held(attempt, input_set, eager, secrets.SystemRandom().random())
    eager.rest()
    attempt.child.rest()


async def _held(attempt: Attempt, input_set: InputSet, eager: Child, window: float | None = None) -> None:
    """Hold what the candidate's last kept call gave and changed against the reference's for the same values.

    The bound is that of the values that were drawn; where it is missed, the very values of the call have their own.
    """
    async with blamed(attempt, "in a timed call"), _taken(attempt, input_set, window) as got:
        with contextlib.closing(Shared("want")) as want:
            await _compared(attempt, input_set, eager, want, got, window)


@contextlib.asynccontextmanager
async def _taken(attempt: Attempt, input_set: InputSet, window: float | None) -> AsyncIterator[Shared]:
    """Memory for a candidate's snapshot: a stretch goes over the host."""
    if window is not None:
        with contextlib.closing(Shared("got")) as got:
            yield got
        return
    async with attempt.prepared.slot(input_set.room) as got:
        yield got


async def _compared(
    attempt: Attempt, input_set: InputSet, eager: Child, want: Shared, got: Shared, window: float | None
) -> None:
    exact = attempt.prepared.lean and window is None and input_set.slices
    if exact:  # in slices, beside what the candidate gave: a whole call of the reference gives that twice
        spec = await attempt.ask(timing_verbs.Snapshot(), [got])
        want.seal(await trusted(eager, timing_verbs.ExpectKept(input_set.inputs.spec, exact), [want]))
    else:
        right, spec = await _both(attempt, eager, timing_verbs.Snapshot(window), [want], [got])
        want.seal(right)
    case = input_set if exact else _as_timed(input_set, want)
    try:
        await compare(attempt, case, want, got, spec, comparison.BOUND + 1, "in a timed call")
    except Objection as objection:
        if objection.error is None:
            raise
        await _reconsidered(attempt, input_set, got, spec, window)


async def _reconsidered(attempt: Attempt, input_set: InputSet, got: Shared, spec: Spec, window: float | None) -> None:
    prepared = attempt.prepared
    async with contextlib.AsyncExitStack() as stack:
        if window is not None:
            got = await stack.enter_async_context(prepared.slot(input_set.room))
            spec = await attempt.ask(timing_verbs.Snapshot(last=False), [got])
        if prepared.lean:
            await attempt.ask(timing_verbs.Unstage(), [])
        exact = stack.enter_context(contextlib.closing(await prepared.exactly(input_set)))
        await compare(attempt, exact, exact.expected, got, spec, comparison.BOUND + 1, "in a timed call")
    if prepared.lean:
        await _staged_again(attempt, input_set)


async def _staged_again(attempt: Attempt, input_set: InputSet) -> None:
    """Have both sides as after a block."""
    eager = (await _sides(attempt, ["eager"], input_set)).children["eager"]
    await _stage(attempt, input_set)
    block = timing_verbs.Block(secrets.randbits(48), 1)
    for child in (eager, attempt.child):
        await child.ask(block, timeout_s=attempt.request.timeout_s)


async def _both(
    attempt: Attempt, eager: Child, verb: Verb[T], memories: Sequence[Shared], of_candidate: Sequence[Shared]
) -> tuple[T, T]:
    """What the reference and the candidate answer, asked at the same time, or one after the other where they give
    gigabytes; raises what either raises once both have answered."""
    timeout_s = attempt.request.timeout_s
    if attempt.prepared.is_giant:
        theirs = await attempt.child.ask(verb, of_candidate, timeout_s)
        return await eager.ask(verb, memories, timeout_s), theirs
    asked = [eager.ask(verb, memories, timeout_s), attempt.child.ask(verb, of_candidate, timeout_s)]
    answers = []
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
        answers.append(answer)
    return answers[0], answers[1]


def _as_timed(input_set: InputSet, want: Shared) -> InputSet:
    """The case with the layout that was written."""
    tensors: list[answers.Seen] = [
        {"name": tensor["name"], "shape": now["shape"], "dtype": now["dtype"], "bytes": now["bytes"]}
        for tensor, now in zip(input_set.tensors, want.spec["tensors"], strict=True)
    ]
    return replace(input_set, tensors=tensors)


async def _counted(attempt: Attempt, input_set: InputSet) -> tuple[answers.Work, evaluation.Peaks]:
    async with blamed(attempt, "after its timed calls"):
        return await attempt.prepared.work(input_set), await peaks.measure(attempt.prepared)


async def _believe(
    attempt: Attempt, input_set: InputSet, samples: Samples, work: answers.Work, reached: evaluation.Peaks
) -> None:
    """Nothing reads its inputs faster than the device can; the device is measured anew before that is said. Where the
    reference itself is faster, more was counted than has to be read."""
    median_us, cold = samples.timing(CANDIDATE).median_us, samples.cache == "cold"
    faster = attempt.prepared.target.hardware.read_over_copy
    floor = floor_us(work, reached, faster, cold)
    if median_us >= floor or samples.timing("eager").median_us < floor:
        return
    try:
        floor = floor_us(work, await peaks.measure(attempt.prepared, anew=True), faster, cold)
    except ChildError as fault:
        raise ours(fault) from fault
    if median_us < floor:
        raise Objection(
            "suspect",
            f"{input_set.where}: {median_us:.1f} us a call, though reading its inputs alone takes {floor:.1f} us "
            "at the best that this device was seen to do",
        )
