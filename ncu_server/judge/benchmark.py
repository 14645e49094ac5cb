"""A candidate takes turns with the baselines on each input shape, and its times are believed or not."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ncu_server.judge import peaks, replies
from ncu_server.judge.candidate import Objection, Trial, blamed, compared, exhausted
from ncu_server.judge.input_set import Case
from ncu_server.judge.interleave import MAX_PAIRS, MIN_PAIRS, Samples, alternate, longer_at_first, visited
from ncu_server.judge.problem import Sides
from ncu_server.judge.roofline import Work, floor_us, limit_us
from ncu_server.judge.telemetry import GAUGES, Gauge
from ncu_server.judge.trusted import ours
from ncu_server.rules import comparison
from ncu_server.sandbox.forkserver import Child, ChildError
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.wire import evaluation

SAMPLING_S = {"cpu": 1.5, "cuda": 0.4}  # by device: how long the alternation may go on
CANDIDATE = "candidate"
LONGER, SLACK_US = 1.4, {"cpu": 50.0, "cuda": 2.0}  # beyond both first sight costs more than noise
TRIES = 3  # before a doubt becomes an objection
AUDITS = 3  # of the first MIN_PAIRS pairs of blocks


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


async def timed(trial: Trial) -> Timed:
    """Take turns with the baselines on each input shape; drop what cannot be believed."""
    session, gauge = trial.session, GAUGES[trial.session.target.device](trial.session.device.probe.uuid)
    names = ["eager", *(n for n in trial.request.baselines if n != "eager")]
    runs, notes = [], []
    for case in session.timed:
        sides = await _sides(trial, names, case)
        notes += [note for note in sides.notes if note not in notes]
        names = list(sides.children)
        samples = await _time_case(trial, case, sides, gauge)
        work, reached = await _counted(trial, case)
        await _believe(trial, case, samples, work, reached)
        runs.append(Run(case, samples, limit_us(work, reached)))
    return Timed(runs, [*notes, *gauge.notes()])


async def _sides(trial: Trial, names: Sequence[str], case: Case) -> Sides:
    """The baselines beside the candidate, which cannot be rid of one by leaving it no memory."""
    with blamed(trial, "in a timed call"):
        sides = await trial.session.sides(names, case)
        for fault in filter(exhausted, sides.failed.values()):
            raise fault
    return sides


async def _time_case(trial: Trial, case: Case, sides: Sides, gauge: Gauge) -> Samples:
    """Measure; then hold the last kept output against the reference's for the same values."""
    session, timeout_s = trial.session, trial.request.timeout_s
    with blamed(trial, "in a timed call"):
        await session.stage(trial.child, case, timeout_s)
        everyone, audited = {**sides.children, CANDIDATE: trial.child}, audits()

        async def audit(pair: int) -> None:
            if pair in audited:
                await _audited(trial, case, sides.children["eager"])

        samples = await alternate(
            everyone,
            CANDIDATE,
            sides.rotation,
            session.target.resolution,
            SAMPLING_S[session.target.device],
            timeout_s,
            between=gauge,
            audit=audit,
        )
    if CANDIDATE in samples.overclaimed:
        raise Objection("suspect", "the candidate claims more time inside its calls than passed outside")
    if CANDIDATE in samples.underclaimed:
        raise Objection("suspect", "the candidate claims less time inside its calls than it computed in them")
    await _held(trial, case, sides.children["eager"])
    await _unremembered(trial, case, sides)
    return samples


async def _unremembered(trial: Trial, case: Case, sides: Sides) -> None:
    """Object where inputs at first sight take longer than the same soon after, or known ones, each time anew. Of values
    that all change at each call nothing can be kept."""
    if sides.rotation.changes:
        return
    longer = []
    for tried in range(TRIES):
        if tried or not case.unseen:
            await trial.session.draw_unseen(case)
        if not case.unseen or (ratio := await _at_first_sight(trial, case, sides)) <= LONGER:
            return
        longer.append(ratio)
    words = f"a call takes {min(longer):.1f} times longer for inputs at first sight than for such as it knows"
    raise Objection("suspect", f"{words}: earlier results are kept, and their time does not count")


async def _at_first_sight(trial: Trial, case: Case, sides: Sides) -> float:
    draws = len(case.unseen)
    group = draws if draws <= sides.rotation.sets else 1
    known = await _visited(trial, sides, [case.inputs], group)
    unseen = await _visited(trial, sides, case.unseen, group)
    await _audited(trial, case, sides.children["eager"])
    return longer_at_first(unseen, known, CANDIDATE, SLACK_US[trial.session.target.device] / group)


async def _visited(trial: Trial, sides: Sides, draws: list[Shared], group: int) -> dict[str, list[float]]:
    eager, timeout_s, fds = sides.children["eager"], trial.request.timeout_s, [one.fd for one in draws]
    with blamed(trial, "in a timed call"):
        await _both(trial, eager, "take_unseen", fds, fds, inputs=[one.spec for one in draws])
        return await visited({"eager": eager, CANDIDATE: trial.child}, len(draws), group, timeout_s)


def audits() -> frozenset[int]:
    """The pairs of blocks after which a candidate has to show what it computed, unforeseeable to it: some of the first,
    and one whenever their number has doubled."""
    drawn = secrets.SystemRandom()
    starts = [MIN_PAIRS << n for n in range(MAX_PAIRS.bit_length()) if MIN_PAIRS << n < MAX_PAIRS]
    later = [drawn.randrange(start, min(2 * start, MAX_PAIRS)) for start in starts]
    return frozenset([*drawn.sample(range(MIN_PAIRS), AUDITS), *later])


async def _audited(trial: Trial, case: Case, eager: Child) -> None:
    """Compare a stretch of what the kept calls gave, drawn only now, and let both rest again."""
    await _held(trial, case, eager, secrets.SystemRandom().random())
    eager.rest()
    trial.child.rest()


async def _held(trial: Trial, case: Case, eager: Child, window: float | None = None) -> None:
    """Hold what the candidate's last kept call gave and changed against the reference's for the same values.

    The bound is that of the values that were drawn; where it is missed, the very values of the call have their own.
    """
    with (
        blamed(trial, "in a timed call"),
        contextlib.closing(Shared("want")) as want,
        contextlib.closing(Shared("got")) as got,
    ):
        right, said = await _both(trial, eager, "snapshot", [want.fd], [got.fd], window=window)
        want.seal(right)
        spec = replies.spec(said)
        try:
            await compared(trial, _as_timed(case, want), want, got, spec, comparison.BOUND + 1, "in a timed call")
        except Objection as objection:
            if objection.error is None:
                raise
            await _reconsidered(trial, case, got, spec, window)


async def _reconsidered(trial: Trial, case: Case, got: Shared, spec: dict[str, Any], window: float | None) -> None:
    with (
        contextlib.closing(await trial.session.exactly(case)) as exact,
        contextlib.closing(Shared("whole")) as whole,
    ):
        if window is not None:
            spec, got = replies.spec(await trial.ask("snapshot", [whole.fd], last=False)), whole
        await compared(trial, exact, exact.expected, got, spec, comparison.BOUND + 1, "in a timed call")


async def _both(
    trial: Trial, eager: Child, verb: str, fds: Sequence[int], of_candidate: Sequence[int], **arguments: Any
) -> tuple[Any, Any]:
    """What the reference and the candidate answer, asked at the same time; raises what either raises once both have
    answered."""
    asked = (
        child.ask(verb, f, trial.request.timeout_s, **arguments)
        for child, f in ((eager, fds), (trial.child, of_candidate))
    )
    said = await asyncio.gather(*asked, return_exceptions=True)
    for fault in said:
        if isinstance(fault, BaseException):
            raise fault
    return said[0], said[1]


def _as_timed(case: Case, want: Shared) -> Case:
    """The case with the layout that was written."""
    written = [{what: place[what] for what in comparison.LAYOUT} for place in want.spec["tensors"]]
    return replace(case, tensors=[tensor | now for tensor, now in zip(case.tensors, written, strict=True)])


async def _counted(trial: Trial, case: Case) -> tuple[Work, evaluation.Peaks]:
    try:
        return await trial.session.work(case), await peaks.measured(trial.session)
    except ChildError as fault:
        raise ours(fault) from fault


async def _believe(trial: Trial, case: Case, samples: Samples, work: Work, reached: evaluation.Peaks) -> None:
    """Nothing reads its inputs faster than the device can; the device is measured anew before that is said. Where the
    reference itself is faster, more was counted than has to be read."""
    median_us, cold = samples.timing(CANDIDATE).median_us, samples.cache == "cold"
    device = trial.session.target.device
    floor = floor_us(work, reached, device, cold)
    if median_us >= floor or samples.timing("eager").median_us < floor:
        return
    try:
        floor = floor_us(work, await peaks.measured(trial.session, anew=True), device, cold)
    except ChildError as fault:
        raise ours(fault) from fault
    if median_us < floor:
        raise Objection(
            "suspect",
            f"{case.where}: {median_us:.1f} us a call, though reading its inputs alone takes {floor:.1f} us "
            "at the best that this device was seen to do",
        )
