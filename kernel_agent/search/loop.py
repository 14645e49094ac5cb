"""The search: rounds of ideas, several implementations of each, the fastest become parents of the next round.

Resuming is the same loop: what the run holds already is neither asked, written nor judged again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kernel_agent.delivery import delivered
from kernel_agent.errors import BudgetSpent, Unprofiled, Unusable
from kernel_agent.interfaces import Bench, Library, OnProgress, Proposer, Stage
from kernel_agent.run import tree
from kernel_agent.run.brief import Brief
from kernel_agent.run.budget import Budget
from kernel_agent.run.events import (
    Confirmed,
    Confirming,
    IdeaRecorded,
    NothingWritten,
    Notice,
    Observer,
    Profiled,
    Profiling,
    Progress,
    RoundStarted,
    Stopped,
    TrialJudged,
    TrialStarted,
    silent,
)
from kernel_agent.run.journal import Journal
from kernel_agent.run.module_checks import Delivery
from kernel_agent.run.tree import (
    Confirmation,
    Delivered,
    Diagnosis,
    EvaluationRecord,
    Ideas,
    PoorBuild,
    Record,
    Run,
    Unwritten,
)
from kernel_agent.run.types import Evaluation, Idea, Status, Trial
from kernel_agent.search import novelty, selection, tuning
from kernel_agent.search.briefing import Briefs, asked_again
from kernel_agent.search.compiled_times import CompiledTimes
from kernel_agent.search.concurrency import together
from kernel_agent.search.tuning import Tunable


@dataclass(slots=True)
class Search:
    """One run's search. `library` None searches without passages; `seeded` begins with the round of the templates.

    `stopped` says why it ended before its last round; `on_round` is called after each.
    """

    run: Run
    journal: Journal
    proposer: Proposer
    bench: Bench
    library: Library | None = None
    observe: Observer = silent
    budget: Budget = field(default_factory=Budget)
    seeded: bool = False
    on_round: Callable[[], None] = lambda: None
    stopped: str | None = None
    _spent: BudgetSpent | None = None
    _unusable: Unusable | None = None
    _briefs: Briefs = field(init=False)
    _kept: frozenset[str] = field(init=False)
    _profiled: bool = True
    _locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def __post_init__(self) -> None:
        self._briefs = Briefs(self.run, self.library, self.record)
        for evaluation in self.run.evaluations.values():
            self.budget.reserve(evaluation.stages)
        self._kept = frozenset(t.id for t in self.run.trials.values() if t.source_id in self.run.evaluations)

    async def play(self) -> Trial:
        """Play the rounds and return the confirmed winner, the reference where nothing beats it.

        Where the budget is spent before the last round, what there is by then is judged again and delivered. The
        modes of torch.compile are timed meanwhile; the second judgement needs the fastest.
        """
        times = CompiledTimes(self.run, self.bench, self.record, self.observe)
        async with times.coming() as all_timed:
            try:
                await self.budget.within(self.rounds())
            except BudgetSpent as spent:
                self.stop(str(spent), spent=True)
            await all_timed
        winner = await self.confirm()
        if self.run.settings.report:
            with suppress(BudgetSpent):
                await self.budget.within(self.profile((winner,)))
        return winner

    async def rounds(self) -> None:
        first = tree.SEEDING if self.seeded else tree.SEEDING + 1
        for number in range(first, self.run.settings.num_rounds + 1):
            await self.round(number)
            self.on_round()
            if self._spent:
                raise self._spent
            if number > tree.SEEDING and (reason := self.fruitless(number) or selection.finished(self.run, number)):
                self.stop(reason)
                return
            if number < self.run.settings.num_rounds:
                await self.profile(selection.worth_profiling(self.run, number))

    def fruitless(self, number: int) -> str | None:
        """Why the search ends with a round that has no ideas at all."""
        if tree.ideas_of(self.run, number):
            return None
        why = f": {self._unusable}" if self._unusable else ""
        return f"the search ends in round {number}: no new ideas came{why}"

    def stop(self, reason: str, spent: bool = False) -> None:
        self.stopped = reason
        self.observe(Stopped(reason, spent))

    async def round(self, number: int) -> None:
        """Think of a round's ideas, unless they are recorded, and pursue all of them at once."""
        self.observe(RoundStarted(number, selection.select(self.run, number)))
        ideas = tree.ideas_of(self.run, number) or await self.think(number)
        for idea in ideas:
            self.observe(IdeaRecorded(idea))
        attempts = range(self.run.settings.implementations_per_idea)
        await together(self.pursue(idea, attempt) for idea in ideas for attempt in attempts)
        await together(self.sweep(trial) for trial in selection.sweepable(self.run, number))

    async def think(self, number: int) -> tuple[Idea, ...]:
        """Ask for ideas on each parent in turn, so that none repeats another's; record them in one transaction."""
        ideas: tuple[Idea, ...] = ()
        wanted, self._unusable = 0, None
        pair = selection.crossing(self.run, number)
        for parent, share in selection.shares(self.run, number, 1 if pair else 0):
            wanted += share
            ideas += await self.ideas(parent, wanted - len(ideas), number, ideas)
        if pair:
            ideas += await self.ideas(pair[0], 1, number, ideas, pair[1])
        if ideas:
            self.record(Ideas(number, ideas))
        return ideas

    async def ideas(
        self, parent: Trial, count: int, number: int, before: tuple[Idea, ...], other: Trial | None = None
    ) -> tuple[Idea, ...]:
        """New ideas on a parent; where some repeat what was tried, others are asked for in their place, once."""
        crossed = other.id if other else None
        brief = await self._briefs.for_ideas(parent, number, before, crossed)
        proposed = await self.proposed(brief, count)
        fresh = (await self.new(parent, number, proposed, before))[:count]
        if len(fresh) < min(count, len(proposed)):
            others = await self.proposed(asked_again(brief, proposed, fresh), count - len(fresh))
            fresh += (await self.new(parent, number, others, (*before, *fresh)))[: count - len(fresh)]
        return tuple(replace(idea, passages=idea.passages or _ids(brief), second_parent=crossed) for idea in fresh)

    async def new(self, parent: Trial, number: int, proposed: list[Idea], before: tuple[Idea, ...]) -> tuple[Idea, ...]:
        """Those of the proposed ideas that say something new."""
        likeness = self.library.likeness if self.library else novelty.unknown
        return await asyncio.to_thread(novelty.new_ideas, self.run, parent, number, proposed, before, likeness)

    async def proposed(self, brief: Brief, count: int) -> list[Idea]:
        """The proposer's ideas; where its replies are of no use that is said, and there are none."""
        try:
            return await self.proposer.ideas(brief, count)
        except Unusable as reason:
            self._unusable = reason
            self.observe(Notice(f"no ideas on one parent: {reason}"))
            return []

    async def pursue(self, idea: Idea, attempt: int) -> None:
        """Write, judge, and while the judge objects repair, at most `max_repairs` times; the last step escalates.

        A compiler's bad news goes back once, before anything runs; where no later version passes, what it was of is
        judged after all.
        """
        failed: tuple[Trial, Evaluation] | None = None
        poor: Trial | None = None
        last, step = self.run.settings.max_repairs + 1, 0
        while step <= last:
            try:
                trial = self.run.trial(idea, attempt, step) or await self.write(idea, attempt, step, failed)
            except BudgetSpent as spent:  # what is written already is judged all the same
                self._spent = spent
                break
            if trial is not None:
                evaluation = await self.judge(idea, trial, heeds=poor is None and step + 1 < last)
                if evaluation.status is Status.PASSED:
                    return
                failed, poor = (trial, evaluation), trial if evaluation.status is Status.POOR_BUILD else poor
            elif failed is None or failed[0] is poor:
                break
            step = step + 1 if trial is not None else max(step + 1, last)
        if poor is not None:
            await self.judge(idea, poor)

    async def write(self, idea: Idea, attempt: int, step: int, failed: tuple[Trial, Evaluation] | None) -> Trial | None:
        """A new trial: the idea's code, or what failed repaired; None where that gives nothing new."""
        nothing = Unwritten(idea.id, attempt, step, "")
        if nothing.id in self.run.unwritten:
            return None
        self.observe(TrialStarted(idea, attempt, step))
        try:
            source = await self.source(idea, attempt, step, failed)
        except Unusable as reason:
            self.record(replace(nothing, reason=reason.fault))
            self.observe(NothingWritten(idea, attempt, step, str(reason)))
            return None
        if source is None or any(trial.source == source for trial in tree.chain(self.run, idea, attempt)):
            return None
        trial = Trial(idea.id, attempt, step, failed[0].id if failed else idea.parent, source)
        self.record(trial)
        return trial

    async def source(self, idea: Idea, attempt: int, step: int, failed: tuple[Trial, Evaluation] | None) -> str | None:
        """What the proposer writes for an implementation's step."""
        if failed is None:
            return await self.proposer.write(await self._briefs.for_code(idea, attempt), idea, attempt)
        brief = await self._briefs.for_repair(idea, *failed)
        spent = step > self.run.settings.max_repairs
        mend = self.proposer.escalate if spent else self.proposer.repair
        return await mend(brief, idea, *failed)

    async def judge(self, idea: Idea, trial: Trial, heeds: bool = False) -> Evaluation:
        """The trial's evaluation, or where it `heeds` the compiler what that said against it. Trials of one source wait
        for the first of them, so no source is judged twice."""
        async with self._locks[trial.source_id]:
            evaluation = self.run.evaluations.get(trial.source_id)
            known = evaluation = evaluation or (self.run.poor_builds.get(trial.source_id) if heeds else None)
            if evaluation is None:
                heeding = {"heeds_compiler": True} if heeds else {}
                with self.budget.clock.work() as waits:
                    progress = self.progress(trial, waits)
                    evaluation = await self.bench.evaluate(self.run.problem, trial.source, progress, **heeding)
                self.budget.reserve(evaluation.stages)
                kind = PoorBuild if evaluation.status is Status.POOR_BUILD else EvaluationRecord
                self.record(kind(trial.source_id, evaluation))
        kept = trial.id in self._kept
        self.observe(TrialJudged(idea, trial, evaluation, shared=known is not None and not kept, kept=kept))
        return evaluation

    async def sweep(self, trial: Trial) -> None:
        """Judge a passed kernel with other values of its declared tunables, rung by rung of successive halving.

        What is recorded is found again by its source, so that a resumed sweep goes the same way and repeats nothing.
        """
        declared = tuning.tunables(trial.source)
        idea, limit = self.run.ideas[trial.idea or ""], self.run.settings.sweep_evaluations
        tried = {tuple(tunable.value for tunable in declared): self.run.speedup(trial)}
        while declared and (rung := tuning.following(declared, tried, limit)):
            variants = [self.variant(trial, idea, declared, values) for values in rung]
            await together(self.judge(idea, variant) for variant in variants)
            tried |= {values: self.run.speedup(variant) for values, variant in zip(rung, variants, strict=True)}

    def variant(self, trial: Trial, idea: Idea, declared: tuple[Tunable, ...], values: tuning.Values) -> Trial:
        """The trial of a kernel with these values, recorded unless it was."""
        source = tuning.with_values(trial.source, declared, values)
        chain = tree.chain(self.run, idea, trial.attempt)
        known = next((one for one in chain if one.source == source), None)
        if known is None:
            pairs = zip(declared, values, strict=True)
            changed = tuple((tunable.name, value) for tunable, value in pairs if value != tunable.value)
            step = max(chain[-1].step, self.run.settings.max_repairs + 1) + 1
            known = Trial(idea.id, trial.attempt, step, trial.id, source, changed)
            self.record(known)
        return known

    async def profile(self, chosen: tuple[Trial, ...]) -> None:
        """Profile what was not yet, in one batch, the original left out; without a profiler, say so once and go on.

        The next round's briefs tell it of their parents and of what disappointed, the account of the run of the winner.
        """
        trials = [trial for trial in chosen if trial.idea and trial.source_id not in self.run.profiles]
        if not trials or not self._profiled:
            return
        self.observe(Profiling(tuple(trials)))
        try:
            sources = [trial.source for trial in trials]
            with self.budget.clock.work() as waits:
                progress = self.progress(trials[0], waits)
                profiles = await self.bench.profile(self.run.problem, sources, progress)
        except Unprofiled as reason:
            self._profiled = False
            self.observe(Notice(f"nothing is profiled in this run: {reason}"))
            return
        for trial, profile in zip(trials, profiles, strict=True):
            self.record(Diagnosis(trial.source_id, profile))
            self.observe(Profiled(trial, profile))

    async def confirm(self) -> Trial:
        """Judge the fastest again, then the next, until one is confirmed as faster than the original.

        Then one more that the first judgement did not tell apart from it, while there is time; templates' variants that
        are level are alike, and not worth it.
        """
        first: Trial | None = None
        for trial in tree.contenders(self.run):
            if first and (tree.by_template(self.run, trial) or not tree.level(self.run, first, trial)):
                break
            try:
                evaluation = await (self.budget.within(self.again(trial)) if first else self.again(trial))
            except BudgetSpent:
                break
            accepted = await self.alone(trial, evaluation)
            self.observe(Confirmed(trial, evaluation, accepted))
            if first:
                break
            first = trial if accepted else None
        return tree.winner(self.run)

    async def again(self, trial: Trial) -> Evaluation:
        """A trial's second judgement: of the file that would be delivered, with new secret inputs in fresh processes,
        beside the fastest of PyTorch."""
        if (known := self.run.confirmations.get(trial.source_id)) is not None:
            return known
        self.observe(Confirming(trial))
        rivals = self.run.description.rivals
        with self.budget.clock.work() as waits:
            evaluation = await self.bench.confirm(
                self.run.problem, self.delivered(trial), rivals, self.progress(trial, waits)
            )
        self.record(Confirmation(trial.source_id, evaluation))
        return evaluation

    async def alone(self, trial: Trial, evaluation: Evaluation) -> bool:
        """Whether a second judgement is accepted and the file works by itself, which is tried once for a source."""
        if not tree.accepted(self.run, evaluation):
            return False
        if trial.source_id not in self.run.deliveries:
            bind = self.run.settings.bind
            with self.budget.clock.work() as waits:
                progress = self.progress(trial, waits)
                checks = await self.bench.verify(self.run.problem, self.delivered(trial), progress)
            self.record(Delivered(trial.source_id, Delivery(bind, checks)))
            if fault := self.run.deliveries[trial.source_id].why_not:
                self.observe(Notice(f"the file of {trial.id[:4]} by itself: {fault}"))
        return tree.stands(self.run, trial)

    def delivered(self, trial: Trial) -> str:
        """The file that a trial would be delivered as."""
        return delivered(trial.source, self.run.problem, self.run.description, self.run.settings.bind)

    def record(self, record: Record) -> None:
        """First on disk, then in memory: what the run holds is never lost."""
        self.journal.append(record, self.budget.clock.seconds)
        self.run.record(record)

    def progress(self, trial: Trial, waits: Callable[[bool], None]) -> OnProgress:
        def report(stage: Stage) -> None:
            waits(stage.ahead is not None)
            self.observe(Progress(trial, stage.message))

        return report


def _ids(brief: Brief) -> tuple[str, ...]:
    return tuple(passage.id for passage in brief.passages)
