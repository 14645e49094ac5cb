"""A bandit with costs: which of several models to ask next, by what each has gained for its cost.

It is Thompson sampling with Beta posteriors (Agrawal and Goyal, "Analysis of Thompson Sampling for the Multi-armed
Bandit Problem", COLT 2012), a reward between 0 and 1 counted as that part of a success; the sample is divided by what
the model's calls cost on average, where budgeted Thompson sampling (Xia et al., IJCAI 2015) divides by a sample too.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

LEAST = 1e-9
"""Dollars or tokens that a call is taken to cost at least: a model may be free."""


@dataclass(frozen=True, slots=True)
class Pull:
    """What a model was asked at one place: its reward, 0 to 1, and its cost in dollars or tokens."""

    model: str
    reward: float
    cost: float


def choice(models: Sequence[str], pulls: Iterable[Pull], turn: int, seed: str) -> str:
    """The model to ask: those without a pull take turns; else that of the largest sample, which the seed decides."""
    known: dict[str, list[Pull]] = {name: [] for name in models}
    for pull in pulls:
        known[pull.model].append(pull)
    if untried := [name for name in models if not known[name]]:
        return untried[turn % len(untried)]
    return max(models, key=lambda name: sample(known[name], f"{seed} {name}"))


def sample(pulls: Sequence[Pull], seed: str) -> float:
    """Reward for a dollar or token: a draw from Beta(1 + rewards, 1 + pulls - rewards), over the mean cost."""
    gained = sum(pull.reward for pull in pulls)
    drawn = random.Random(seed).betavariate(1 + gained, 1 + len(pulls) - gained)
    return drawn / max(fmean(pull.cost for pull in pulls), LEAST)
