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

    The first grant of a problem is its share. `why` says what spoke for it.
    """

    problem: str
    minutes: float | None = None
    dollars: float | None = None
    tokens: int | None = None
    rounds: int = 0
    why: str = ""
