"""What the device of a server does all the time, by what the calls under way are at."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kernel_agent.interfaces import OnProgress, Stage
from kernel_agent.run.occupancy import DeviceTime

DEVICE, PREPARING, PROPOSER = "device", "preparing", "proposer"
ORDER = (DEVICE, "building", PREPARING, "waiting")
"""Of what several calls are at, the first counts."""


class Occupancy:
    """Seconds of one server's device while the server is open, and which device that is, as far as it has told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._at: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._card = ""
        self._uuid: str | None = None
        self._host: str | None = None

    def open(self, now: bool) -> None:
        """The server answers from now on, or no longer."""
        self._count()
        self._since = self._clock() if now else None

    def seen_on(self, card: str, uuid: str | None, host: str | None) -> None:
        """The device, as far as it is told."""
        self._card, self._uuid, self._host = card or self._card, uuid or self._uuid, host or self._host

    @contextmanager
    def call(self, on_progress: OnProgress) -> Iterator[OnProgress]:
        """One call; what it is at is told to what is yielded, which passes it on."""
        at = PREPARING

        def move(to: str | None) -> None:
            nonlocal at
            self._count()
            self._at[at] -= 1
            at = to or at
            self._at[at] += 1

        def hear(stage: Stage) -> None:
            move(stage.at if stage.at in ORDER else None)
            on_progress(stage)

        self._count()
        self._at[at] += 1
        try:
            yield hear
        finally:
            self._count()
            self._at[at] -= 1

    def read(self) -> DeviceTime:
        """All of it, up to now."""
        self._count()
        waited = {name: round(self._seconds[name], 3) for name in (*ORDER[1:], PROPOSER) if self._seconds[name]}
        return DeviceTime(self._card, self._uuid, self._host, round(self._seconds[DEVICE], 3), waited)

    def _count(self) -> None:
        if self._since is not None:
            now, doing = self._clock(), next((name for name in ORDER if self._at[name]), PROPOSER)
            self._seconds[doing] += now - self._since
            self._since = now
