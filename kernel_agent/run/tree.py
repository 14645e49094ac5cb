"""The tree of a run. A `Run` grows by `record` alone; rounds, chains, parents and the best are read off it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeVar

from kernel_agent.run.module_checks import Delivery
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.types import (
    Baseline,
    Description,
    Evaluation,
    Idea,
    Interval,
    Problem,
    Profile,
    Status,
    Timing,
    Trial,
    Versus,
    digest,
)
from kernel_agent.settings import Settings
from kernel_agent.targets import target_of
from rag.experience.ledger import Experience

SEEDING = 0
"""The round in which templates write the first parents of a model's search."""


@dataclass(frozen=True, slots=True)
class Ideas:
    """A round's ideas, recorded all at once."""

    round: int
    ideas: tuple[Idea, ...]


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A step of an implementation of which no code came, and why."""

    idea: str
    attempt: int
    step: int
    reason: str

    @property
    def id(self) -> str:
        """That of the trial that it might have been."""
        return digest(self.idea, self.attempt, self.step)


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """The judge's word on one source."""

    source_id: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class PoorBuild:
    """What the compiler said against one source that was not run. It is no verdict: the source may be judged yet."""

    source_id: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The second judgement of one source, with new secret inputs and fresh processes."""

    source_id: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Delivered:
    """What was tried of the file that one source would be delivered as."""

    source_id: str
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the profiler says of one source."""

    source_id: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Recalled:
    """What earlier runs had measured when this one began: as it stood then, so that all its briefs say the same.

    `run` and `date` are what later runs will know this one by.
    """

    run: str
    date: str
    experiences: tuple[Experience, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownBaselines:
    """Which modes of torch.compile were known when something was asked first, by its place in the tree. Written while
    some are still to come, so that it is asked in the same words when the run is resumed."""

    place: str
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DevicesUsed:
    """What each device did since the record of this kind before."""

    number: int
    devices: tuple[DeviceTime, ...]


Record = (
    Ideas
    | Trial
    | Unwritten
    | EvaluationRecord
    | PoorBuild
    | Confirmation
    | Delivered
    | Diagnosis
    | Recalled
    | Baseline
    | ShownBaselines
    | DevicesUsed
)
T = TypeVar("T")


@dataclass(slots=True)
class Run:
    """What has happened in a run so far. `trials` begins with the reference, trial zero.

    `description` is what is known by now: it grows with each of the `baselines`.
    """

    problem: Problem
    settings: Settings
    description: Description
    ideas: dict[str, Idea] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    poor_builds: dict[str, Evaluation] = field(default_factory=dict)
    confirmations: dict[str, Evaluation] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    unwritten: dict[str, Unwritten] = field(default_factory=dict)
    recalled: Recalled | None = None
    baselines: dict[str, Baseline] = field(default_factory=dict)
    shown_baselines: dict[str, tuple[str, ...]] = field(default_factory=dict)
    used: dict[str, DevicesUsed] = field(default_factory=dict)
    _first: Description = field(init=False, repr=False, compare=False)
    chains: dict[tuple[str | None, int], list[Trial]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._first = self.description
        reference = Trial(None, 0, 0, None, self.problem.source)
        self.trials.setdefault(reference.id, reference)

    def record(self, record: Record) -> None:
        """Add one record. Raises ValueError where it is there already or hangs on nothing."""
        match record:
            case Ideas(ideas=ideas):
                for idea in ideas:
                    _known(idea.parent, self.trials)
                    _add(self.ideas, idea.id, idea)
            case Trial():
                _known(record.idea, self.ideas)
                _known(record.parent, self.trials)
                _add(self.trials, record.id, record)
                self.chains.setdefault((record.idea, record.attempt), []).append(record)
            case Unwritten():
                _known(record.idea, self.ideas)
                _add(self.unwritten, record.id, record)
            case EvaluationRecord(source_id, evaluation):
                _add(self.evaluations, source_id, evaluation)
            case PoorBuild(source_id, evaluation):
                _add(self.poor_builds, source_id, evaluation)
            case Confirmation(source_id, evaluation):
                _add(self.confirmations, source_id, evaluation)
            case Delivered(source_id, delivery):
                _add(self.deliveries, source_id, delivery)
            case Diagnosis(source_id, profile):
                _add(self.profiles, source_id, profile)
            case Recalled():
                if self.recalled is not None:
                    raise ValueError("what was recalled is recorded already")
                self.recalled = record
            case Baseline():
                _add(self.baselines, record.name, record)
                self.description = self.description.joined(record)
            case ShownBaselines(place, known):
                _add(self.shown_baselines, place, known)
            case DevicesUsed():
                _add(self.used, str(record.number), record)

    @property
    def reference(self) -> Trial:
        return next(iter(self.trials.values()))

    def described(self, place: str) -> Description:
        """The description as it was when this was first asked, where that was recorded; else as it is."""
        if place not in self.shown_baselines:
            return self.description
        then = self._first
        for name in self.shown_baselines[place]:
            then = then.joined(self.baselines[name])
        return then

    def trial(self, idea: Idea, attempt: int, step: int) -> Trial | None:
        """The recorded trial at this place of the tree."""
        return self.trials.get(digest(idea.id, attempt, step))

    def evaluation(self, trial: Trial) -> Evaluation | None:
        """The judge's word on a trial; the reference is its own eager baseline, at a speed-up of exactly 1."""
        return reference(self.description) if trial.idea is None else self.evaluations.get(trial.source_id)

    def speedup(self, trial: Trial) -> float | None:
        """The median paired speed-up over eager PyTorch of a trial that passed."""
        evaluation = self.evaluation(trial)
        return evaluation.speedup if evaluation and evaluation.status is Status.PASSED else None


def reference(description: Description) -> Evaluation:
    """The original as if it had been judged: at eager PyTorch's time, beside the other baselines'."""
    eager = description.baselines["eager"]
    versus = tuple(_against(name, timing, eager) for name, timing in description.baselines.items())
    return Evaluation(Status.PASSED, "", eager, versus)


def _against(name: str, baseline: Timing, own: Timing) -> Versus:
    ratio = baseline.median_us / own.median_us
    return Versus(name, baseline, Interval(ratio, ratio, ratio))


def _known(key: str | None, there: dict[str, T]) -> None:
    if key not in there:
        raise ValueError(f"a record hangs on {key}, which is not recorded")


def _add(there: dict[str, T], key: str, value: T) -> None:
    if key in there:
        raise ValueError(f"{key} is recorded already")
    there[key] = value


def round_of(run: Run, trial: Trial) -> int:
    """The round a trial belongs to; the reference stands before the first, in round 0."""
    return run.ideas[trial.idea].round if trial.idea else 0


def title(run: Run, trial: Trial) -> str:
    """What a trial is called: by its own kernel where that says so, else by its idea."""
    return own_title(run.ideas[trial.idea], trial) if trial.idea else "the original"


def own_title(idea: Idea, trial: Trial) -> str:
    """A template writes `# kernel: TITLE` into what it emits: a later attempt's genes are not the idea's own."""
    told = re.findall(r"^# kernel: (.+)$", trial.source, re.MULTILINE) if idea.change is not None else []
    swept = f" [{values(trial)}]" if trial.tuned else ""
    seed = "seed: " if idea.round == SEEDING else ""
    return seed + (str(told[-1]) if told else idea.title) + swept


def values(trial: Trial) -> str:
    """The values that a sweep gave a trial's tunables."""
    return ", ".join(f"{name}={value}" for name, value in trial.tuned)


def ideas_of(run: Run, round: int) -> tuple[Idea, ...]:
    """A round's ideas in the order in which they were recorded."""
    return tuple(idea for idea in run.ideas.values() if idea.round == round)


def chain(run: Run, idea: Idea, attempt: int) -> tuple[Trial, ...]:
    """The steps of one implementation: its first writing, then its repairs and what a sweep made of it."""
    return tuple(sorted(run.chains.get((idea.id, attempt), ()), key=lambda trial: trial.step))


def lineage(run: Run, trial: Trial) -> tuple[Trial, ...]:
    """The trials from the reference down to this one."""
    path = [trial]
    while path[-1].parent is not None:
        path.append(run.trials[path[-1].parent])
    return tuple(reversed(path))


def ranking(run: Run, before: int | None = None, swept: bool = True) -> tuple[Trial, ...]:
    """The trials that passed, the reference among them, fastest first; `before` stops at a round.

    Each source is there once, and each implementation by its fastest version; without `swept`, by the one that a sweep
    departs from.

    The order depends on what is recorded and not on when: equal speeds stand in the order of the tree.
    """

    def placed() -> Iterator[tuple[tuple[float, int, str, int, int], Trial]]:
        for trial in run.trials.values():
            round, speedup = round_of(run, trial), run.speedup(trial)
            if speedup is not None and (before is None or round < before) and (swept or not trial.tuned):
                yield (-speedup, round, trial.idea or "", trial.attempt, trial.step), trial

    sources: set[str] = set()
    implementations: dict[tuple[str | None, int], Trial] = {}
    for _, trial in sorted(placed(), key=itemgetter(0)):
        if trial.source_id not in sources:
            sources.add(trial.source_id)
            implementations.setdefault((trial.idea, trial.attempt), trial)
    return tuple(implementations.values())


def best(run: Run) -> Trial:
    """The fastest trial by its first judgement; the reference where nothing beats it."""
    return ranking(run)[0]


def progress(run: Run) -> tuple[float, ...]:
    """The best speed-up so far, by first judgements, after each round that was begun."""
    last = max((idea.round for idea in run.ideas.values()), default=0)
    return tuple(run.speedup(ranking(run, before=number + 1)[0]) or 1.0 for number in range(1, last + 1))


CONTENDERS = 3
"""How many trials are judged a second time at most, the fastest first."""


def contenders(run: Run) -> tuple[Trial, ...]:
    """The fastest trials among those that the server found faster than the original.

    Of a record without the server's verdict the median counts: it has to be beyond the noise.
    """

    def faster(trial: Trial) -> bool:
        evaluation = run.evaluation(trial)
        if evaluation is None or evaluation.comparison is None:
            return (run.speedup(trial) or 0.0) > 1 + target_of(run.problem.target).noise
        return evaluation.comparison == "faster"

    return tuple(trial for trial in ranking(run) if trial.idea and faster(trial))[:CONTENDERS]


def accepted(run: Run, confirmation: Evaluation) -> bool:
    """Whether a second judgement passed and the server found it faster than eager PyTorch.

    Of a record without the server's verdict the whole interval has to be beyond the noise.
    """
    speedup = confirmation.against("eager")
    if confirmation.status is not Status.PASSED or speedup is None:
        return False
    if confirmation.comparison is None:
        return speedup.low > 1 + target_of(run.problem.target).noise
    return confirmation.comparison == "faster"


def stands(run: Run, trial: Trial) -> bool:
    """Whether a trial may be delivered: its second judgement was accepted, and the file works by itself.

    Runs of before have no word on the file.
    """
    confirmation, delivery = run.confirmations.get(trial.source_id), run.deliveries.get(trial.source_id)
    return confirmation is not None and accepted(run, confirmation) and (delivery is None or delivery.works)


def by_template(run: Run, trial: Trial) -> bool:
    """Whether a template wrote a trial's idea."""
    return trial.idea is not None and run.ideas[trial.idea].change is not None


def level(run: Run, trial: Trial, other: Trial) -> bool:
    """Whether the first judgements of two trials leave open which is the faster: their intervals overlap."""
    one, two = (found.against("eager") for found in map(run.evaluation, (trial, other)) if found)
    return bool(one and two and one.low <= two.high and two.low <= one.high)


def winner(run: Run) -> Trial:
    """The surest by its second judgement of those where that was accepted: by the lower end of its speed-up's interval.

    The reference where there is none.
    """
    again = {trial: run.confirmations[trial.source_id] for trial in contenders(run) if stands(run, trial)}
    found = {trial: word.against("eager") for trial, word in again.items()}
    sure = {trial: speedup.low for trial, speedup in found.items() if speedup}
    return max(sure, key=lambda trial: sure[trial], default=run.reference)
