"""What a run tells whoever watches it: small values, sent in the order in which things happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kernel_agent.run.budget import Charge, Limits
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.types import Baseline, Description, Evaluation, Idea, Problem, Profile, Trial


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth one line that is no step of the search: the server restarted, an index is being built."""

    message: str


@dataclass(frozen=True, slots=True)
class RunOpened:
    """The run's journal has begun: from now on there is something to resume in its directory."""

    directory: Path


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The problem is described and the search begins; `kept` evaluations are in the journal already (fresh: 0).

    `expected` are the verdicts of all rounds, without repairs and sweeps.
    """

    problem: Problem
    description: Description
    directory: Path
    proposer: str
    retrieval_mode: str
    rounds: int
    kept: int
    expected: int = 0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Charged:
    """A model call was paid for."""

    charge: Charge


@dataclass(frozen=True, slots=True)
class BaselineTimed:
    """A mode of torch.compile was timed, or is not."""

    baseline: Baseline


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A round's parents are chosen; on a resumed run this round may be partly recorded already."""

    round: int
    parents: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class IdeaRecorded:
    """An idea is in the journal. On resume, ideas that were there already are told again."""

    idea: Idea


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """Step 0 asks for an implementation of the idea, a later step for a repair."""

    idea: Idea
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class NothingWritten:
    """No code came of a step that was asked for."""

    idea: Idea
    attempt: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A trial's stage in words: queued, building, checking, timing."""

    trial: Trial
    message: str


@dataclass(frozen=True, slots=True)
class TrialJudged:
    """A trial has its evaluation; `shared` with an earlier trial of the same source, or `kept` in a resumed journal."""

    idea: Idea
    trial: Trial
    evaluation: Evaluation
    shared: bool = False
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Profiling:
    """The next round's parents and what disappointed, or at the end the winner, go to the profiler, all at once."""

    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Profiled:
    """What the profiler says of a trial."""

    trial: Trial
    profile: Profile


@dataclass(frozen=True, slots=True)
class Confirming:
    """The best trial goes through the judge again, with new secret inputs and fresh processes."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The second judgement; `accepted` where it passed and is faster beyond the noise."""

    trial: Trial
    evaluation: Evaluation
    accepted: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The search ends early, for this reason; the best so far is judged again and delivered. `spent` if by a budget."""

    reason: str
    spent: bool = False


@dataclass(frozen=True, slots=True)
class DevicesSeen:
    """What each device has done in the run so far, sessions before this one included; told after each round."""

    devices: tuple[DeviceTime, ...]


Event = (
    Notice
    | RunOpened
    | RunStarted
    | Charged
    | BaselineTimed
    | RoundStarted
    | IdeaRecorded
    | TrialStarted
    | NothingWritten
    | Progress
    | TrialJudged
    | Profiling
    | Profiled
    | Stopped
    | Confirming
    | Confirmed
    | DevicesSeen
)


class Observer(Protocol):
    """Called with every event, in the event loop's thread; it must neither block nor raise."""

    def __call__(self, event: Event, /) -> None: ...


def silent(event: Event, /) -> None:
    """The observer that shows nothing."""
