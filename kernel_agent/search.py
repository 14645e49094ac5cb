"""The search: rounds of ideas, several implementations of each, the fastest become parents of the next round.

Resuming is the same loop: what the run holds already is neither asked, written nor judged again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from kernel_agent import tree
from kernel_agent.errors import Waiting
from kernel_agent.events import (
    Confirmed,
    Confirming,
    IdeaRecorded,
    Observer,
    Progress,
    RoundStarted,
    TrialJudged,
    TrialStarted,
    silent,
)
from kernel_agent.journal import Journal
from kernel_agent.query import query
from kernel_agent.tree import Confirmation, Ideas, Judgement, Record, Run
from kernel_agent.types import Brief, Evaluation, Idea, Problem, Status, Trial
from rag import Answer, Query

T = TypeVar("T")


class Proposer(Protocol):
    """Who has ideas and writes code. Given the same brief, a proposer proposes the same."""

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        """At most `count` transformations of the brief's parent; fewer where it has no more."""

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        """One complete candidate module for the idea."""

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The failed trial's module mended, or None where there is nothing to try."""


class Bench(Protocol):
    """Who measures. Faults of the kernel are evaluations; faults of the bench are exceptions."""

    async def evaluate(
        self, problem: Problem, source: str, on_progress: Callable[[str], None] | None = None
    ) -> Evaluation:
        """Judge a candidate: build it, check it, time it against eager PyTorch."""

    async def confirm(
        self,
        problem: Problem,
        source: str,
        baselines: Iterable[str],
        on_progress: Callable[[str], None] | None = None,
    ) -> Evaluation:
        """Judge it again with new secret inputs in fresh processes, against the baselines (`eager` among them)."""


class Library(Protocol):
    """What is known of writing kernels."""

    def search(self, query: Query) -> Answer:
        """The passages that answer best; called in a thread."""


@dataclass(slots=True)
class Search:
    """One run's search. `library` None searches without passages."""

    run: Run
    journal: Journal
    proposer: Proposer
    bench: Bench
    library: Library | None = None
    observe: Observer = silent
    _kept: frozenset[str] = field(init=False)
    _locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def __post_init__(self) -> None:
        self._kept = frozenset(t.id for t in self.run.trials.values() if t.source_id in self.run.evaluations)

    async def play(self) -> Trial:
        """Play the rounds and return the confirmed winner, the reference where nothing beats it."""
        for number in range(1, self.run.settings.num_rounds + 1):
            await self.round(number)
        return await self.confirm()

    async def round(self, number: int) -> None:
        """Think of a round's ideas, unless they are recorded, and pursue all of them at once."""
        self.observe(RoundStarted(number, tree.select(self.run, number)))
        ideas = tree.ideas_of(self.run, number) or await self.think(number)
        for idea in ideas:
            self.observe(IdeaRecorded(idea))
        attempts = range(self.run.settings.implementations_per_idea)
        await together(self.pursue(idea, attempt) for idea in ideas for attempt in attempts)

    async def think(self, number: int) -> tuple[Idea, ...]:
        """Ask for ideas on each parent in turn, so that none repeats another's; record them in one transaction."""
        ideas: tuple[Idea, ...] = ()
        wanted = 0
        for parent, share in tree.shares(self.run, number):
            wanted += share
            ideas += await self.ideas(parent, wanted - len(ideas), number, ideas)
        if ideas:
            self.record(Ideas(number, ideas))
        return ideas

    async def ideas(self, parent: Trial, count: int, number: int, taken: tuple[Idea, ...]) -> tuple[Idea, ...]:
        brief = await self.brief(parent, number, taken=taken)
        proposed = await self.proposer.ideas(brief, count)
        fresh = tree.new_ideas(self.run, parent, number, proposed, taken)[:count]
        return tuple(idea if idea.passages else replace(idea, passages=_ids(brief)) for idea in fresh)

    async def pursue(self, idea: Idea, attempt: int) -> None:
        """Write, judge, and while the judge objects repair, at most `max_repairs` times."""
        failed: tuple[Trial, Evaluation] | None = None
        for step in range(self.run.settings.max_repairs + 1):
            trial = self.run.trial(idea, attempt, step) or await self.write(idea, attempt, step, failed)
            if trial is None:
                return
            evaluation = await self.judge(idea, trial)
            if evaluation.status is Status.PASSED:
                return
            failed = trial, evaluation

    async def write(self, idea: Idea, attempt: int, step: int, failed: tuple[Trial, Evaluation] | None) -> Trial | None:
        """A new trial: the idea's code, or what failed repaired; None where the proposer gives up."""
        self.observe(TrialStarted(idea, attempt, step))
        brief = await self.brief(self.run.trials[idea.parent], idea.round, idea)
        if failed is None:
            source: str | None = await self.proposer.write(brief, idea, attempt)
        else:
            source = await self.proposer.repair(brief, idea, *failed)
        if source is None:
            return None
        trial = Trial(idea.id, attempt, step, failed[0].id if failed else idea.parent, source)
        self.record(trial)
        return trial

    async def judge(self, idea: Idea, trial: Trial) -> Evaluation:
        """The trial's evaluation. Trials of one source wait for the first of them, so no source is judged twice."""
        async with self._locks[trial.source_id]:
            evaluation = known = self.run.evaluations.get(trial.source_id)
            if evaluation is None:
                evaluation = await self.bench.evaluate(self.run.problem, trial.source, self.progress(trial))
                self.record(Judgement(trial.source_id, evaluation))
        kept = trial.id in self._kept
        self.observe(TrialJudged(idea, trial, evaluation, shared=known is not None and not kept, kept=kept))
        return evaluation

    async def confirm(self) -> Trial:
        """Judge the fastest again, then the next, until one is confirmed as faster than the original."""
        for trial in tree.contenders(self.run):
            evaluation = self.run.confirmations.get(trial.source_id)
            if evaluation is None:
                self.observe(Confirming(trial))
                rivals = self.run.description.rivals
                evaluation = await self.bench.confirm(self.run.problem, trial.source, rivals, self.progress(trial))
                self.record(Confirmation(trial.source_id, evaluation))
            accepted = tree.accepted(self.run, evaluation)
            self.observe(Confirmed(trial, evaluation, accepted))
            if accepted:
                break
        return tree.winner(self.run)

    async def brief(self, parent: Trial, number: int, idea: Idea | None = None, taken: tuple[Idea, ...] = ()) -> Brief:
        """What the tree says of a parent, with the passages that the library finds for it or for the idea."""
        brief = tree.brief(self.run, parent, number, taken)
        if self.library is None:
            return brief
        answer = await asyncio.to_thread(self.library.search, query(brief, idea))
        return replace(brief, passages=answer.passages, retrieval_mode=answer.mode)

    def record(self, record: Record) -> None:
        """First on disk, then in memory: what the run holds is never lost."""
        self.journal.append(record)
        self.run.record(record)

    def progress(self, trial: Trial) -> Callable[[str], None]:
        return lambda message: self.observe(Progress(trial, message))


def _ids(brief: Brief) -> tuple[str, ...]:
    return tuple(passage.id for passage in brief.passages)


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order, all computed at once; the first failure stops the rest and is raised as itself.

    What waits for a person stops nothing: it is raised when all the rest is done.
    """
    waits: list[Waiting] = []

    async def going_on(one: Coroutine[Any, Any, T]) -> T | None:
        try:
            return await one
        except Waiting as wait:
            waits.append(wait)
            return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(going_on(one)) for one in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0]  # noqa: B904
    if waits:
        raise Waiting(sorted(prompt for wait in waits for prompt in wait.prompts))
    return [cast(T, task.result()) for task in tasks]
