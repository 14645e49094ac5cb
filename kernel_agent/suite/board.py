"""What a suite is at: what runs where, what has ended, and when all will be done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kernel_agent.run.events import (
    Confirming,
    Event,
    Notice,
    Profiling,
    RoundStarted,
    RunStarted,
    TrialJudged,
)
from kernel_agent.run.types import Interval
from kernel_agent.suite.eta import remaining_s
from kernel_agent.suite.grants import History
from kernel_agent.suite.types import Outcome, State


@dataclass(slots=True)
class Lane:
    """A problem that is under way since `since` (seconds of a clock that only goes on). `granted` is in minutes."""

    problem: str
    since: float
    granted: float | None = None
    doing: str = "starting"
    device: str = ""
    best: Interval | None = None
    reached: float | None = None
    judged: int = 0
    _run: RunStarted | None = None

    def observe(self, event: Event) -> None:
        """Take in what happens in its run."""
        match event:
            case RunStarted():
                self._run, self.device = event, event.description.device.name
            case RoundStarted(round):
                self.doing = f"round {round} of {self._run.rounds}" if self._run else f"round {round}"
            case TrialJudged(evaluation=evaluation):
                self.judged += 1
                speed = evaluation.against("eager")
                if speed and evaluation.timing and speed.median > (self.best.median if self.best else 1.0):
                    self.best = speed
                    known = self._run.description if self._run else None
                    self.reached = known.reached(evaluation.timing.median_us) if known else None
            case Profiling(trials):
                self.doing = f"profiling {len(trials)}"
            case Confirming():
                self.doing = "confirming the best"
            case Notice(message) if self._run is None:
                self.doing = message


@dataclass(slots=True)
class Board:
    """A suite as it stands. `took_s` is how long each ended problem was under way, `granted_minutes` what each begins
    with where that is limited, `ends_at` when its minutes are over, on the clock of `Lane.since`."""

    total: int
    at_once: int
    granted_minutes: float | None = None
    ends_at: float | None = None
    lanes: dict[str, Lane] = field(default_factory=dict)
    ended: dict[str, tuple[Outcome, History]] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)
    set_aside: set[str] = field(default_factory=set)
    """Problems that wait, and that this session does not begin."""

    def begin(self, lane: Lane) -> None:
        """A problem gets under way, for the first time or again."""
        self.ended.pop(lane.problem, None)
        self.lanes[lane.problem] = lane

    def end(self, outcome: Outcome, history: History, now: float) -> None:
        """A problem has ended, for now."""
        lane = self.lanes.pop(outcome.problem, None)
        if lane is not None:
            self.took_s.append(now - lane.since)
        if outcome.state is State.WAITING:
            self.set_aside.add(outcome.problem)
        else:
            self.ended[outcome.problem] = outcome, history

    @property
    def waiting(self) -> int:
        """How many problems this session still begins."""
        return self.total - len(self.ended) - len(self.lanes) - len(self.set_aside)

    @property
    def counts(self) -> Counter[State]:
        return Counter(outcome.state for outcome, _ in self.ended.values())

    def remaining_s(self, now: float) -> float | None:
        """Seconds until all is played; None where nothing is known of it yet."""
        running = [now - lane.since for lane in self.lanes.values()]
        most = None if self.granted_minutes is None else self.granted_minutes * 60
        left = None if self.ends_at is None else max(self.ends_at - now, 0.0)
        return remaining_s(self.took_s, running, self.waiting, self.at_once, most, left)
