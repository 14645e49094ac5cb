"""The tree of a run. A `Run` grows by `record` alone; rounds, chains, parents and the best are read off it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from kernel_agent.settings import Settings
from kernel_agent.types import (
    Brief,
    Description,
    Evaluation,
    Idea,
    Interval,
    Outcome,
    Problem,
    Status,
    Timing,
    Trial,
    Versus,
    digest,
)

NOISE = {"cpu": 0.06}
"""Share of a ratio that is noise on a target; 0.01 where none is given. A kernel is faster beyond it, or not faster."""


@dataclass(frozen=True, slots=True)
class Ideas:
    """A round's ideas, recorded all at once."""

    round: int
    ideas: tuple[Idea, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judge's word on one source."""

    source_id: str
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The second judgement of one source, with new secret inputs and fresh processes."""

    source_id: str
    evaluation: Evaluation


Record = Ideas | Trial | Judgement | Confirmation
T = TypeVar("T")


@dataclass(slots=True)
class Run:
    """What has happened in a run so far. `trials` begins with the reference, trial zero."""

    problem: Problem
    settings: Settings
    description: Description
    ideas: dict[str, Idea] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    confirmations: dict[str, Evaluation] = field(default_factory=dict)

    def __post_init__(self) -> None:
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
            case Judgement(source_id, evaluation):
                _add(self.evaluations, source_id, evaluation)
            case Confirmation(source_id, evaluation):
                _add(self.confirmations, source_id, evaluation)

    @property
    def reference(self) -> Trial:
        return next(iter(self.trials.values()))

    def trial(self, idea: Idea, attempt: int, step: int) -> Trial | None:
        """The recorded trial at this place of the tree."""
        return self.trials.get(digest(idea.id, attempt, step))

    def evaluation(self, trial: Trial) -> Evaluation | None:
        """The judge's word on a trial; the reference is its own eager baseline, at a speed-up of exactly 1."""
        if trial.idea is not None:
            return self.evaluations.get(trial.source_id)
        eager = self.description.baselines["eager"]
        versus = tuple(_against(name, timing, eager) for name, timing in self.description.baselines.items())
        return Evaluation(Status.PASSED, "", eager, versus)

    def speedup(self, trial: Trial) -> float | None:
        """The median paired speed-up over eager PyTorch of a trial that passed."""
        evaluation = self.evaluation(trial)
        return evaluation.speedup if evaluation and evaluation.status is Status.PASSED else None


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
    return str(told[-1]) if told else idea.title


def ideas_of(run: Run, round: int) -> tuple[Idea, ...]:
    """A round's ideas in the order in which they were recorded."""
    return tuple(idea for idea in run.ideas.values() if idea.round == round)


def chain(run: Run, idea: Idea, attempt: int) -> tuple[Trial, ...]:
    """The steps of one implementation: its first writing, then its repairs."""
    own = (trial for trial in run.trials.values() if (trial.idea, trial.attempt) == (idea.id, attempt))
    return tuple(sorted(own, key=lambda trial: trial.step))


def lineage(run: Run, trial: Trial) -> tuple[Trial, ...]:
    """The trials from the reference down to this one."""
    path = [trial]
    while path[-1].parent is not None:
        path.append(run.trials[path[-1].parent])
    return tuple(reversed(path))


def ranking(run: Run, before: int | None = None) -> tuple[Trial, ...]:
    """The trials that passed, the reference among them, fastest first, each source once; `before` stops at a round.

    The order depends on what is recorded and not on when: equal speeds stand in the order of the tree.
    """

    def place(trial: Trial) -> tuple[float, int, str, int, int]:
        return -(run.speedup(trial) or 0.0), round_of(run, trial), trial.idea or "", trial.attempt, trial.step

    passed = (trial for trial in run.trials.values() if run.speedup(trial) is not None)
    earlier = (trial for trial in passed if before is None or round_of(run, trial) < before)
    first: dict[str, Trial] = {}
    for trial in sorted(earlier, key=place):
        first.setdefault(trial.source_id, trial)
    return tuple(first.values())


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
    """The fastest trials among those measured as faster than the original by more than the noise."""
    threshold = 1 + NOISE.get(run.problem.target, 0.01)
    faster = (trial for trial in ranking(run) if trial.idea and (run.speedup(trial) or 0.0) > threshold)
    return tuple(faster)[:CONTENDERS]


def accepted(run: Run, confirmation: Evaluation) -> bool:
    """Whether a second judgement passed with the whole interval of its speed-up beyond the noise."""
    speedup = confirmation.against("eager")
    passed = confirmation.status is Status.PASSED
    return passed and speedup is not None and speedup.low > 1 + NOISE.get(run.problem.target, 0.01)


def winner(run: Run) -> Trial:
    """The fastest trial whose second judgement was accepted; the reference where there is none."""
    for trial in contenders(run):
        confirmation = run.confirmations.get(trial.source_id)
        if confirmation and accepted(run, confirmation):
            return trial
    return run.reference


def select(run: Run, round: int) -> tuple[Trial, ...]:
    """The parents of a round: the top share of the last round's passed trials and the best so far, and one explorer.

    The explorer is the fastest of the rest that stems from another idea. Before the first success, the reference.
    """
    ranked = ranking(run, before=round)
    pool = [trial for trial in ranked if trial is ranked[0] or round_of(run, trial) == round - 1]
    count = max(1, math.floor(run.settings.selection_percentage * len(pool) + 0.5))
    chosen, rest = pool[:count], pool[count:]
    ideas = {trial.idea for trial in chosen}
    explorer = next((trial for trial in rest if trial.idea not in ideas), rest[0] if rest else None)
    return tuple(chosen) if explorer is None else (*chosen, explorer)


def shares(run: Run, round: int) -> tuple[tuple[Trial, int], ...]:
    """A round's parents, each with its share of the round's ideas; the first get what does not divide."""
    total = run.settings.branching_factor
    parents = select(run, round)[:total]
    each, over = divmod(total, len(parents))
    return tuple((parent, each + (place < over)) for place, parent in enumerate(parents))


def outcome(run: Run, idea: Idea) -> Outcome | None:
    """What became of an idea: its fastest trial, or how its last one failed; None where nothing was judged."""
    judged = [
        (trial, evaluation)
        for attempt in range(run.settings.implementations_per_idea)
        for trial in chain(run, idea, attempt)
        if (evaluation := run.evaluation(trial)) is not None
    ]
    if not judged:
        return None
    passed = [evaluation for _, evaluation in judged if evaluation.status is Status.PASSED]
    if passed:
        return Outcome(idea.title, Status.PASSED, max(evaluation.speedup or 0.0 for evaluation in passed))
    last = judged[-1][1]
    return Outcome(idea.title, last.status, None, next(iter(last.log.strip().splitlines()), ""))


def brief(run: Run, parent: Trial, round: int, taken: Iterable[Idea] = ()) -> Brief:
    """What may be known of a parent in a round, from earlier rounds alone, so that a resumed round asks the same.

    Lessons are the ideas that led to the parent; siblings all other ideas of the run, those `taken` in this round last.
    """
    path = lineage(run, parent)
    own = list(dict.fromkeys(trial.idea for trial in path if trial.idea))
    others = [i for i in run.ideas.values() if i.round < round and i.id not in own]
    return Brief(
        problem=run.problem,
        description=run.description,
        round=round,
        parent=parent,
        parent_idea=run.ideas[parent.idea] if parent.idea else None,
        parent_evaluation=run.evaluation(parent),
        siblings=(*_outcomes(run, others), *(Outcome(idea.title, None, None) for idea in taken)),
        lessons=_outcomes(run, (run.ideas[idea] for idea in own)),
        served=tuple(dict.fromkeys(passage for idea in taken for passage in idea.passages)),
    )


def _outcomes(run: Run, ideas: Iterable[Idea]) -> tuple[Outcome, ...]:
    found = (outcome(run, idea) for idea in ideas)
    return tuple(o for o in found if o is not None)


def signature(idea: Idea) -> str:
    """What makes two ideas the same: equal genes, or an equal title but for case and punctuation."""
    if idea.change is not None:
        return json.dumps(dict(idea.change), sort_keys=True)
    return " ".join(re.findall(r"\w+", idea.title.casefold()))


def new_ideas(
    run: Run, parent: Trial, round: int, proposed: Iterable[Idea], taken: Iterable[Idea] = ()
) -> tuple[Idea, ...]:
    """The proposed ideas, bound to their parent and round, without those that were tried or `taken` already.

    A model's idea counts as tried on its own lineage only; equal genes make the same kernel wherever they stand.
    """
    on_path = {trial.id for trial in lineage(run, parent)}
    tried = {signature(idea) for idea in run.ideas.values() if idea.parent in on_path or idea.change is not None}
    tried |= {signature(idea) for idea in taken}
    fresh: dict[str, Idea] = {}
    for idea in proposed:
        mark = signature(idea)
        if mark not in tried:
            bound = Idea(
                digest(round, parent.id, mark), round, parent.id, idea.title, idea.reasoning, idea.change, idea.passages
            )
            fresh.setdefault(mark, bound)
    return tuple(fresh.values())
