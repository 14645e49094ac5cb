"""Where in a run a model is asked, in words that are the same on every machine that plays the run, and read back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_agent.run.types import Idea

WORDS = re.compile(
    r"(?:ideas of|(.+),) round (\d+)(?:, attempt (\d+)(?:, (?:repair|diagnosis) (\d+)|(, last try))?)?"
    r", no\. (\d+)(?:, again)?",
    re.DOTALL,
)


def of_ideas(round: int) -> str:
    """Where a round's ideas are asked for."""
    return f"ideas of round {round}"


def of_code(idea: Idea, attempt: int, step: str = "") -> str:
    """Where an implementation is; its later steps are `repair N`, `diagnosis N` (for that repair) and `last try`."""
    return f"{idea.title}, round {idea.round}, attempt {attempt}{step and f', {step}'}"


@dataclass(frozen=True, slots=True)
class CallSite:
    """A round's ideas, which have no title, or an implementation's step, which is None for its last try."""

    round: int
    title: str | None
    attempt: int
    step: int | None
    number: int


def read(words: str) -> CallSite | None:
    """The place of a question as it is recorded: with its number, and as the same where it is asked `again`."""
    if (found := WORDS.fullmatch(words)) is None:
        return None
    title, round, attempt, step, last, number = found.groups()
    return CallSite(int(round), title, int(attempt or 0), None if last else int(step or 0), int(number))
