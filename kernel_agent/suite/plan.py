"""What a suite was asked for, and what its problems are granted of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_agent.run.budget import Limits
from kernel_agent.run.types import JSON


@dataclass(frozen=True, slots=True)
class Plan:
    """What a suite was asked for: where its problems come from, the settings of their runs, and its limits in all.

    `settings` are without keys; they hold the limits for one problem (`budget_minutes`, `budget_dollars`). The minutes
    of `limits` are those of the clock on the wall, over all sessions. With `even` no problem gets what another leaves.
    `at_once` is how many problems are under way at a time, by default two a device.
    """

    source: str
    settings: JSON
    limits: Limits = field(default_factory=Limits)
    even: bool = False
    at_once: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """More for one problem: what is added to its limits (None where there is no such limit), and to its rounds.

    The first grant of a problem is its share. `why` says what spoke for it; `best` and `judged` are the speed-up that
    it had by then and the candidates that had been judged for it.
    """

    problem: str
    minutes: float | None = None
    dollars: float | None = None
    tokens: int | None = None
    rounds: int = 0
    why: str = ""
    best: float = 1.0
    judged: int = 0


def granted(grants: tuple[Grant, ...]) -> tuple[Limits, int]:
    """What grants come to, and the rounds that they add; None where none of them names a limit."""

    def total(amounts: list[float | None]) -> float | None:
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if known else None

    tokens = total([grant.tokens for grant in grants])
    limits = Limits(
        total([grant.dollars for grant in grants]),
        None if tokens is None else int(tokens),
        total([grant.minutes for grant in grants]),
    )
    return limits, sum(grant.rounds for grant in grants)
