"""Where in a run a model is asked: a value that is the same on every machine that plays the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from kernel_agent.run.types import Idea

Kind = Literal["ideas", "code", "repair", "diagnosis", "last try"]

WORDS = re.compile(
    r"(?:ideas of|(?P<title>.+),) round (?P<round>\d+)(?:, attempt (?P<attempt>\d+)"
    r"(?:, (?P<kind>repair|diagnosis) (?P<step>\d+)|, (?P<last>last try))?)?, no\. (?P<number>\d+)(?P<again>, again)?",
    re.DOTALL,
)
"""How runs and cassettes of before have it."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """A round's ideas, which have no title, or an implementation's step, which is None for its last try.

    A diagnosis is of the step that it is made for. `number` counts the questions at one place from 1, 0 before one is
    asked; `again` is one whose reply could not be used. What makes an ensemble's choice is the repr.
    """

    round: int
    title: str | None = None
    attempt: int = 0
    step: int | None = 0
    number: int = 0
    kind: Kind = field(default="code", repr=False)
    again: bool = field(default=False, repr=False)

    def __str__(self) -> str:
        """In words, for people."""
        if self.kind == "ideas":
            words = f"ideas of round {self.round}"
        else:
            later = {"code": "", "last try": ", last try"}.get(self.kind, f", {self.kind} {self.step}")
            words = f"{self.title}, round {self.round}, attempt {self.attempt}{later}"
        return f"{words}, no. {self.number}{', again' if self.again else ''}"

    def numbered(self, number: int) -> CallSite:
        """The same as one of several questions there."""
        return replace(self, number=number)

    def row(self) -> dict[str, Any]:
        """As JSON values; `load` reads them."""
        return asdict(self)


def of_ideas(round: int) -> CallSite:
    """Where a round's ideas are asked for."""
    return CallSite(round, kind="ideas")


def of_code(idea: Idea, attempt: int, kind: Kind = "code", step: int | None = 0) -> CallSite:
    """Where an implementation is; the last try has no step."""
    return CallSite(idea.round, idea.title, attempt, step, kind=kind)


def load(stored: object) -> CallSite | None:
    """A place as it is recorded, in the words of before too; None where there is none."""
    if isinstance(stored, Mapping):
        try:
            return CallSite(**stored)
        except TypeError:
            return None
    found = WORDS.fullmatch(stored) if isinstance(stored, str) else None
    if found is None:
        return None
    kinds: dict[str | None, Kind] = {"repair": "repair", "diagnosis": "diagnosis", "last try": "last try"}
    return CallSite(
        int(found["round"]),
        found["title"],
        int(found["attempt"] or 0),
        None if found["last"] else int(found["step"] or 0),
        int(found["number"]),
        kinds.get(found["last"] or found["kind"], "code" if found["title"] else "ideas"),
        bool(found["again"]),
    )
