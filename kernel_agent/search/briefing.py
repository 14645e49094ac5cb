"""The briefs of a run: what whoever proposes its next kernels may know, for ideas, for code and for repairs.

Of the run it is what earlier rounds found, so that a resumed round asks the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernel_agent.interfaces import Library
from kernel_agent.knowledge.extract import experiences_for_brief
from kernel_agent.knowledge.situation import operators_of, situation
from kernel_agent.prompts.advice import chosen, rules
from kernel_agent.run.brief import Brief, Outcome, SecondParent, Unjudged
from kernel_agent.run.tree import SEEDING, Run, ShownBaselines, chain, lineage, reference, values
from kernel_agent.run.types import Evaluation, Idea, Profile, Status, Trial, digest
from kernel_agent.search.selection import profiled


def _second_parent(run: Run, trial: Trial) -> SecondParent:
    evaluation = run.evaluation(trial)
    assert trial.idea is not None and evaluation is not None, "parents have passed"
    return SecondParent(trial, run.ideas[trial.idea], evaluation)


def outcome(run: Run, idea: Idea, profiles: Mapping[str, Profile]) -> Outcome | None:
    """What became of an idea: its fastest trial, or how its last one failed, or that no code came; None before that.

    `profiles` are those that may be told, by source.
    """
    judged = [
        (trial, evaluation)
        for attempt in range(run.settings.implementations_per_idea)
        for trial in chain(run, idea, attempt)
        if (evaluation := run.evaluation(trial)) is not None
    ]
    told = Outcome(idea.title, Unjudged.BEING_TRIED, None, predicted=idea.predicted, gist=idea.transformation)
    if not judged:
        why = next((one.reason for one in run.unwritten.values() if one.idea == idea.id), None)
        return replace(told, status=Unjudged.NO_CODE, remark=why) if why is not None else None
    passed = [(evaluation.speedup or 0.0, trial) for trial, evaluation in judged if evaluation.status is Status.PASSED]
    if not passed:
        return replace(told, status=judged[-1][1].status, remark=_remark(judged[-1][1]))
    speedup, trial = max(passed, key=lambda one: one[0])
    parent = run.trials[idea.parent]
    gain = speedup / (run.speedup(parent) or 1.0) if parent.idea else None
    others = [f"{values(one)} {found:.2f}x" for found, one in passed if one.tuned and one is not trial]
    return replace(told, status=Status.PASSED, speedup=speedup, gain=gain, remark=_limit(trial, others, profiles))


def _limit(trial: Trial, others: Sequence[str], profiles: Mapping[str, Profile]) -> str:
    """The values that a sweep chose for a trial, the `others` that it tried, and what a profiler saw limit it."""
    parts = [f"with {values(trial)}"] if trial.tuned else []
    parts += [f"swept to no gain: {', '.join(others)}"] if others else []
    if (profile := profiles.get(trial.source_id)) and profile.bound != "unknown":
        parts.append(f"bound by {profile.bound}: {[*profile.findings, profile.why][0]}")
    return "; ".join(parts)


def brief(
    run: Run,
    parent: Trial,
    round: int,
    second_parent: str | None = None,
    profiles: Mapping[str, Profile] | None = None,
    advice: tuple[str, ...] = (),
) -> Brief:
    """What may be known of a parent in a round, from earlier rounds alone, so that a resumed round asks the same.

    Ancestors are the ideas that led to the parent, siblings all other ideas of the run; `second_parent` is a trial's
    id, `profiles` those of earlier rounds by source, all where it is None.
    """
    profiles = run.profiles if profiles is None else profiles
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
        siblings=_outcomes(run, others, profiles),
        ancestors=_outcomes(run, (run.ideas[idea] for idea in own), profiles),
        parent_profile=profiles.get(parent.source_id),
        second_parent=_second_parent(run, run.trials[second_parent]) if second_parent else None,
        advice=advice,
        repairs=run.settings.max_repairs,
        sweeps=run.settings.sweep_evaluations,
        limit_s=run.settings.evaluation_timeout_s,
    )


REPEATS = "says what another says; say something that differs in mechanism"


@dataclass(slots=True)
class Briefs:
    """Makes the briefs of a run. What the tree says of a parent is the same for a whole round, so it is kept.

    Without a `library` there are no passages, and templates read none. Of torch.compile a brief tells what the run
    knows when it is asked for first; while something is still to come that is recorded by `record`. Briefs are ready in
    the order in which they were asked for, however long their passages take, so that prompts are numbered as ideas are.
    """

    run: Run
    library: Library | None = None
    record: Callable[[ShownBaselines], None] | None = None
    _advice: tuple[str, ...] = field(init=False)
    _kept: dict[tuple[int, str, str | None], Brief] = field(default_factory=dict)
    _turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    _profiles: dict[int, dict[str, Profile]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError where the user's rules cannot be read."""
        run = self.run
        operators = operators_of(run.problem, run.description)
        arithmetic = run.description.arithmetic or "float32"
        self._advice = chosen(rules(run.settings.prompt_rules), operators, run.problem.target, arithmetic)

    async def for_ideas(
        self, parent: Trial, round: int, before: Sequence[Idea] = (), second_parent: str | None = None
    ) -> Brief:
        """For new ideas on a parent; `before` are this round's ideas so far."""
        brief = self._asked(self._of_parent(parent, round, second_parent), "ideas", round, parent.id, second_parent)
        if before:
            tried = (Outcome(one.title, Unjudged.BEING_TRIED, None) for one in before)
            served = tuple(dict.fromkeys(passage for one in before for passage in one.passages))
            brief = replace(brief, siblings=(*brief.siblings, *tried), served=served)
        if round > SEEDING:
            brief = await self._with_passages(brief)
        return replace(brief, experiences=experiences_for_brief(self.run, brief))

    async def for_code(self, idea: Idea, attempt: int) -> Brief:
        """For an implementation of an idea."""
        brief = self._for_author(idea, attempt, "")
        if idea.change is not None:
            return brief
        return await self._with_passages(brief, idea, attempt)

    async def for_repair(self, idea: Idea, failed: Trial, evaluation: Evaluation) -> Brief:
        """For another version of a trial that failed. Pages help with what compilers say; what a run does wrong stands
        in its own source."""
        brief = self._for_author(idea, failed.attempt, evaluation.log)
        if (
            idea.change is None
            and evaluation.status in (Status.BUILD_ERROR, Status.POOR_BUILD)
            and evaluation.log.strip()
        ):
            brief = await self._with_passages(brief, idea, failed.attempt, evaluation.log)
        return replace(brief, repair_history=repair_history(self.run, idea, failed))

    def _for_author(self, idea: Idea, attempt: int, log: str) -> Brief:
        brief = self._of_parent(self.run.trials[idea.parent], idea.round, idea.second_parent)
        return self._asked(brief, "code", idea.id, attempt, log)

    def _of_parent(self, parent: Trial, round: int, second_parent: str | None) -> Brief:
        key = round, parent.id, second_parent
        if key not in self._kept:
            profiles = self._profiles_before(round)
            self._kept[key] = brief(self.run, parent, round, second_parent, profiles, self._advice)
        return self._kept[key]

    def _asked(self, brief: Brief, *place: object) -> Brief:
        """The brief with the description of when it was asked for first."""
        key = digest(*place)
        if self.record and key not in self.run.shown_baselines and self.run.description.unmeasured:
            self.record(ShownBaselines(key, tuple(self.run.baselines)))
        known = self.run.described(key)
        judged = brief.parent_evaluation if brief.parent_idea else reference(known)
        return replace(brief, description=known, parent_evaluation=judged)

    async def _with_passages(self, brief: Brief, idea: Idea | None = None, attempt: int = 0, log: str = "") -> Brief:
        if self.library is None:
            return brief
        consulted = asyncio.create_task(asyncio.to_thread(self.library.consult, situation(brief, idea, attempt, log)))
        async with self._turns:
            answer = await consulted
        return replace(brief, passages=answer.passages, retrieval_mode=answer.mode)

    def _profiles_before(self, round: int) -> dict[str, Profile]:
        """The profiles, by source, that were taken before a round."""
        known = max((earlier for earlier in self._profiles if earlier <= round), default=SEEDING)
        for later in range(known, round):
            self._profiles[later + 1] = self._profiles.get(later, {}) | profiled(self.run, later)
        return self._profiles.get(round, {})


def asked_again(brief: Brief, proposed: Iterable[Idea], fresh: Iterable[Idea]) -> Brief:
    """The same brief where some of the proposed ideas repeat what was tried: those that are not fresh are refused."""
    titles = {idea.title for idea in fresh}
    told = (
        Outcome(one.title, Unjudged.BEING_TRIED, None)
        if one.title in titles
        else Outcome(one.title, Unjudged.REFUSED, None, REPEATS)
        for one in proposed
    )
    return replace(brief, siblings=(*brief.siblings, *told))


def repair_history(run: Run, idea: Idea, failed: Trial) -> tuple[Outcome, ...]:
    """What became of the versions of an implementation before the one that failed last."""
    found = []
    for trial in chain(run, idea, failed.attempt):
        evaluation = run.evaluation(trial)
        if trial.step < failed.step and evaluation is not None:
            name = f"repair {trial.step}" if trial.step else "first version"
            found.append(Outcome(name, evaluation.status, None, _remark(evaluation)))
    return tuple(found)


def _remark(evaluation: Evaluation) -> str:
    return next(iter(evaluation.log.strip().splitlines()), "")


def _outcomes(run: Run, ideas: Iterable[Idea], profiles: Mapping[str, Profile]) -> tuple[Outcome, ...]:
    found = (outcome(run, idea, profiles) for idea in ideas)
    return tuple(o for o in found if o is not None)
