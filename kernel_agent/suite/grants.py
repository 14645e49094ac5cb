"""One budget over many problems: each begins with a share, and what is left goes where there is headroom.

Pure: what was measured goes in, the next grant comes out. Amounts are Limits: minutes of work, dollars, tokens; None
is no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from kernel_agent.run.budget import Limits
from kernel_agent.suite.plan import Grant, granted
from kernel_agent.suite.types import State

FIRST = 0.5
"""The part of an even share that a problem begins with, where what others leave is granted later."""

LEAST = 0.1
"""The part of a share below which what is left is not worth a run's beginning again."""

SHORTEST = 0.75
"""Minutes that no share is below while there are so many: a description takes up to 25 s, and a verdict some seconds
more (benchmarks/results/kernelbench-sizes-h200.md). So few minutes are for few problems, and the others wait."""

UNKNOWN = math.log(2)
"""The headroom of a problem whose limit is not known, as the logarithm of a speed-up."""

UNTRIED = 1e-4
"""The gain a call of a problem that was stopped before it could show any: above none, below any that was measured."""


@dataclass(frozen=True, slots=True)
class History:
    """How far a problem has come: its grants, what it has used of them, the best speed-up and the share of the limit
    that this reaches (None where that is not known).

    `judged` counts candidates. `spent_out` is whether its budget ended it, `played_out` whether its rounds did.
    """

    problem: str
    state: State = State.WAITING
    grants: tuple[Grant, ...] = ()
    spent: Limits = field(default_factory=lambda: Limits(0.0, 0, 0.0))
    best: float = 1.0
    reached: float | None = None
    judged: int = 0
    spent_out: bool = False
    played_out: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all problems of a suite.

    `share` is what each begins with, `cap` the most that one may get; `near` the share of the limit from which on a
    problem is done; `noise` the part of a speed-up that is no gain.
    """

    share: Limits
    cap: Limits
    even: bool = False
    near: float = 0.95
    noise: float = 0.02


def share(total: Limits, cap: Limits, count: int, even: bool) -> Limits:
    """What each of so many problems begins with: its even share of what there is for all, or half of that; of minutes
    at least SHORTEST."""

    def part(whole: float | None, most: float | None) -> float | None:
        if whole is None:
            return most
        each = whole / max(count, 1) * (1 if even else FIRST)
        return each if most is None else min(each, most)

    even_share = _each(part, total, cap)
    if even_share.minutes is None or total.minutes is None:
        return even_share
    most = total.minutes if cap.minutes is None else min(total.minutes, cap.minutes)
    return replace(even_share, minutes=max(even_share.minutes, min(SHORTEST, most)))


def first(left: Limits, histories: Sequence[History], problem: str, rules: Rules) -> Grant | None:
    """A waiting problem's share, or less where less is left for all that still wait; None where hardly any is."""
    waiting = sum(history.state is State.WAITING for history in histories)
    free = _free(left, [one for one in histories if one.state is not State.WAITING], rules)

    def part(own: float | None, rest: float | None) -> float | None:
        return own if own is None or rest is None else min(own, max(rest, 0.0) / max(waiting, 1))

    amount = _each(part, rules.share, free)
    if amount.minutes is not None and free.minutes is not None:
        own = rules.share.minutes or 0.0
        amount = replace(amount, minutes=max(amount.minutes, min(SHORTEST, own, free.minutes)))
    if any(one is not None and one <= LEAST * part and part > 0 for one, part in _pairs(amount, rules.share)):
        return None
    return Grant(problem, amount.minutes, amount.dollars, amount.tokens, why="its share")


def raised(left: Limits, histories: Sequence[History], rules: Rules) -> Grant | None:
    """What the first problem lacks of its share that a budget ended: it got less, or shares have been raised since."""
    free = _free(left, histories, rules)

    def part(own: float | None, rest: float | None) -> float | None:
        return own if own is None or rest is None else min(own, rest)

    for one in histories:
        ended = one.state is State.WAITING or (one.state is State.DONE and one.spent_out)
        if not ended or not one.grants:
            continue
        lacks = _each(_less, rules.share, granted(one.grants)[0])
        amount = _each(part, lacks, free)
        if any(own is not None and own > LEAST * whole for own, whole in _pairs(amount, rules.share) if whole):
            why = "the rest of its share"
            return Grant(one.problem, amount.minutes, amount.dollars, amount.tokens, 0, why, one.best, one.judged)
    return None


def next_grant(left: Limits, histories: Sequence[History], rules: Rules) -> Grant | None:
    """Who gets more of what is `left` beside what was granted: the problem with the highest score, or nobody.

    A problem whose budget ended it gets as much again as it began with, one whose rounds are played and that still
    gained one round more too.
    """
    if rules.even:
        return None
    best = max(histories, key=lambda one: score(one, rules), default=None)
    if best is None or score(best, rules) <= 0:
        return None
    amount = _amount(_free(left, histories, rules), best, rules)
    if amount is None:
        return None
    why = f"{best.best:.2f}x so far" + (f", {best.reached:.0%} of the limit" if best.reached else "")
    rounds = int(best.played_out)
    return Grant(best.problem, amount.minutes, amount.dollars, amount.tokens, rounds, why, best.best, best.judged)


def score(history: History, rules: Rules) -> float:
    """Headroom (limit over best) times the gain per judged candidate since the last grant, both as logarithms.

    0 for what gets nothing: a problem that runs, waits or failed, one near its limit, one that was flat since its last
    grant, one that ended by itself.
    """
    if history.state is not State.DONE or not (history.spent_out or history.played_out) or not history.grants:
        return 0.0
    if history.reached is not None and history.reached >= rules.near:
        return 0.0
    last, is_share = history.grants[-1], len(history.grants) == 1
    gain = math.log(max(history.best / last.best, 1.0))
    calls = history.judged - last.judged
    headroom = math.log(1 / history.reached) if history.reached else UNKNOWN
    if gain > math.log(1 + rules.noise):
        return headroom * gain / max(calls, 1)
    untried = is_share and history.spent_out and not history.played_out and calls == 0
    return headroom * UNTRIED if untried else 0.0


def _amount(free: Limits, history: History, rules: Rules) -> Limits | None:
    """As much as the problem began with, within what is free and its cap; None where that is not worth a grant."""
    had, _ = granted(history.grants)
    worth = True

    def part(unit: float | None, rest: float | None, most: float | None, own: float | None) -> float | None:
        nonlocal worth
        if rest is None or unit is None:
            return None  # no limit in all: it has had its cap from the beginning
        amount = min(unit, rest, math.inf if most is None else most - (own or 0.0))
        worth = worth and (amount >= LEAST * unit or unit == 0)
        return max(amount, 0.0)

    tokens = part(rules.share.tokens, free.tokens, rules.cap.tokens, had.tokens)
    amount = Limits(
        part(rules.share.dollars, free.dollars, rules.cap.dollars, had.dollars),
        None if tokens is None else int(tokens),
        part(rules.share.minutes, free.minutes, rules.cap.minutes, had.minutes),
    )
    limited = any(one is not None for one in (amount.minutes, amount.dollars, amount.tokens))
    return amount if worth and limited else None


def _free(left: Limits, histories: Iterable[History], rules: Rules) -> Limits:
    """What is left once every problem that runs has used its grants, and every one that waits its share."""
    free = left
    for history in histories:
        if history.state not in (State.RUNNING, State.WAITING):
            continue
        begun = _each(_less, granted(history.grants)[0], history.spent)
        free = _each(_less, free, begun if history.grants else rules.share)
    return free


def _less(one: float | None, other: float | None) -> float | None:
    return one if one is None or other is None else max(one - other, 0.0)


def _each(of: Callable[[float | None, float | None], float | None], one: Limits, other: Limits) -> Limits:
    """Limits made from two, amount by amount."""
    tokens = of(one.tokens, other.tokens)
    return Limits(
        of(one.dollars, other.dollars), None if tokens is None else int(tokens), of(one.minutes, other.minutes)
    )


def _pairs(one: Limits, other: Limits) -> Iterable[tuple[float | None, float]]:
    return (
        (own, beside or 0.0)
        for own, beside in (
            (one.minutes, other.minutes),
            (one.dollars, other.dollars),
            (one.tokens, other.tokens),
        )
    )
