"""Several models for one role: which is asked is chosen by the bandit, from what the replies of each came to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Protocol

from kernel_agent.llm.bandit import Pull, choice
from kernel_agent.llm.call_site import CallSite, load
from kernel_agent.llm.metered import Metered
from kernel_agent.llm.model import Calls, Question, Reply, Role
from kernel_agent.llm.prices import Price
from kernel_agent.run.tree import Run, chain, ideas_of
from kernel_agent.run.types import JSON, Idea, Trial, digest


def pulled(
    run: Run, calls: Iterable[tuple[str, str, JSON]], role: Role | None, before: int, prices: Mapping[str, Price | None]
) -> Iterator[Pull]:
    """The pulls of the models with these prices in a role and in the rounds before one, from a journal's calls.

    Later ones are left out, so that a choice does not hang on which call came back first. Costs are tokens where any
    price is not known.
    """
    known = {name: price for name, price in prices.items() if price is not None}
    asked: dict[tuple[str, CallSite], list[tuple[str, float]]] = {}
    for _, reply, about in calls:
        place, model = load(about.get("place")), str(about.get("arm"))
        if place and place.round < before and about.get("role") == role and model in prices:
            tokens = int(about["prompt_tokens"]), int(about["completion_tokens"])
            paid = known[model].of(*tokens) if len(known) == len(prices) else float(sum(tokens))
            asked.setdefault((model, replace(place, again=False)), []).append((reply, paid))
    for (model, place), found in asked.items():
        yield Pull(model, reward(run, place, [reply for reply, _ in found]), sum(paid for _, paid in found))


def reward(run: Run, place: CallSite, replies: Sequence[str]) -> float:
    """log2 of the speed-up, over its idea's parent, of the fastest kernel that came of a call: 1 is twice its speed.

    It is held within 0 (nothing passed or was faster) and 1. To a call for ideas counts what became of those whose
    titles are in its replies, to a diagnosis the repair that it was made for.
    """
    gains = [
        (run.speedup(trial) or 0.0) / (run.speedup(run.trials[idea.parent]) or 1.0)
        for idea in ideas_of(run, place.round)
        for trial in _written(run, idea, place, replies)
    ]
    return min(1.0, log2(max([1.0, *gains])))


def _written(run: Run, idea: Idea, place: CallSite, replies: Iterable[str]) -> Iterator[Trial]:
    if place.title is None and any(_words(idea.title) in _words(reply) for reply in replies):
        for attempt in range(run.settings.implementations_per_idea):
            yield from chain(run, idea, attempt)
    elif place.title == idea.title:
        written = (trial for trial in chain(run, idea, place.attempt) if not trial.tuned)
        yield from (trial for trial in written if place.step in (None, trial.step))


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def round_robin_index(run: Run, place: CallSite, seed: str) -> int:
    """Whose turn it is while models are untried: the next one's at each list of ideas, idea and attempt at one.

    After a failure the seed decides, so that a kernel's repairs do not hang on which model wrote it.
    """
    if place.title is None:
        return place.number - 1
    if place.step != 0:
        return int(digest(seed), 16)
    return [idea.title for idea in ideas_of(run, place.round)].index(place.title) + place.attempt


class Past(Calls, Protocol):
    """A journal: the calls with their replies and what they cost, and the tree that came of them."""

    def calls(self) -> Sequence[tuple[str, str, JSON]]: ...
    def load(self) -> Run: ...


class Ensemble:
    """Answers by whichever of several models is chosen. They are named as a setting names them."""

    def __init__(self, models: Mapping[str, Metered], past: Past) -> None:
        self._models, self._past = models, past
        self._prices = {name: model.price for name, model in models.items()}
        self._before: dict[Role | None, tuple[int, Run, tuple[Pull, ...]]] = {}
        self.remedy = next(iter(models.values())).remedy

    async def answer(self, question: Question) -> Reply:
        """Raises BudgetSpent where the chosen model may cost more than is left."""
        name = self._chosen(question)
        return replace(await self._models[name].answer(question), arm=name)

    def _chosen(self, question: Question) -> str:
        models, place = tuple(self._models), question.place
        if place is None:
            return models[0]
        role = question.role
        if role not in self._before or self._before[role][0] != place.round:
            run = self._past.load()
            pulls = pulled(run, self._past.calls(), role, place.round, self._prices)
            self._before[role] = place.round, run, tuple(pulls)
        _, run, known = self._before[role]
        seed = f"{run.problem.id} {role} {place!r}"
        return choice(models, known, round_robin_index(run, place, seed), seed)

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()
