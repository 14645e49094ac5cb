"""Two proposers in one: templates write the first parents of a model's search."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_agent.interfaces import Proposer
from kernel_agent.run import tree
from kernel_agent.run.brief import Brief
from kernel_agent.run.types import Evaluation, Idea, Trial


@dataclass(frozen=True, slots=True)
class Seeded:
    """The ideas of the seeding round come from templates, all later ones from the model."""

    seed: Proposer
    model: Proposer

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        return await (self.seed if brief.round == tree.SEEDING else self.model).ideas(brief, count)

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        return await self._of(idea).write(brief, idea, attempt)

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        return await self._of(idea).repair(brief, idea, trial, evaluation)

    async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        return await self._of(idea).escalate(brief, idea, trial, evaluation)

    def _of(self, idea: Idea) -> Proposer:
        return self.model if idea.change is None else self.seed
