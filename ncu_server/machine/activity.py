"""What a call is at, told as data: whoever holds the device, builds or waits says so, and the call's client hears it.

A call does several things at once; it is at the one that says most of the device (STAGES, first to last).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ncu_server.wire.meta import STAGES, Stage

IDLE: Stage = "preparing"
"""What a call is at that says nothing else."""


class Activity:
    """One call's; `changed` is set whenever it comes to another stage."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._at: Counter[Stage] = Counter()

    @property
    def stage(self) -> Stage:
        return next((stage for stage in STAGES if self._at[stage]), IDLE)

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """While this lasts, the call is at a stage."""
        self._add(stage, 1)
        try:
            yield
        finally:
            self._add(stage, -1)

    def _add(self, stage: Stage, count: int) -> None:
        before = self.stage
        self._at[stage] += count
        if self.stage != before:
            self.changed.set()


_current: ContextVar[Activity | None] = ContextVar("activity", default=None)


@contextmanager
def call() -> Iterator[Activity]:
    """The activity of a call, which is that of all tasks that are made inside."""
    activity = Activity()
    token = _current.set(activity)
    try:
        yield activity
    finally:
        _current.reset(token)


@contextmanager
def during(stage: Stage) -> Iterator[None]:
    """While this lasts, the call that it is done for is at a stage; nothing where it is done for none."""
    activity = _current.get()
    if activity is None:
        yield
        return
    with activity.during(stage):
        yield
