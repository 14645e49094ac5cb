"""What a prompt is made of: the parent it starts from, and what earlier rounds say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernel_agent.run.types import Description, Evaluation, Idea, Problem, Profile, Status, Trial
from rag import Passage
from rag.experience.ledger import Experience


class Unjudged(StrEnum):
    """Where an idea stands of which the judge has found nothing.

    What is being tried may pass yet; a refused one repeats another, and of one no code came.
    """

    BEING_TRIED = "being_tried"
    REFUSED = "refused"
    NO_CODE = "no_code"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A sibling's or ancestor's idea and what became of it.

    `speedup` is over eager PyTorch, `gain` over the kernel that the idea departs from, if any; `predicted` was promised
    over the latter, else the former. `gist` says how it was to be done, `remark` why it failed, or why no code
    came, or what limits it.
    """

    title: str
    status: Status | Unjudged
    speedup: float | None
    remark: str = ""
    gain: float | None = None
    predicted: float | None = None
    gist: str = ""

    @property
    def ended(self) -> bool:
        """Whether it was tried to its end: judged, or without code."""
        return self.status not in (Unjudged.BEING_TRIED, Unjudged.REFUSED)


@dataclass(frozen=True, slots=True)
class SecondParent:
    """What a parent is crossed with: a passed trial of another idea."""

    trial: Trial
    idea: Idea
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Brief:
    """All that a proposer may know when it thinks about one parent in one round."""

    problem: Problem
    description: Description
    round: int
    parent: Trial
    parent_idea: Idea | None
    parent_evaluation: Evaluation | None
    siblings: tuple[Outcome, ...] = ()
    ancestors: tuple[Outcome, ...] = ()
    passages: tuple[Passage, ...] = ()
    retrieval_mode: str = "none"
    parent_profile: Profile | None = None
    served: tuple[str, ...] = ()
    second_parent: SecondParent | None = None
    repair_history: tuple[Outcome, ...] = ()
    """For a repair: what became of the earlier versions of the same implementation."""
    advice: tuple[str, ...] = ()
    """What rules say of the problem's operators."""
    repairs: int = 0
    """How often a candidate may be repaired; with `sweeps`, how many combinations of its tunables are tried, and
    `limit_s`, the seconds that it may take, what an author may count on."""
    sweeps: int = 0
    limit_s: float = 120.0
    experiences: tuple[Experience, ...] = ()
    """For ideas: what earlier runs measured where the same kind of work was limited by the same thing."""
