"""What is asked of the library, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["lexical", "hybrid"]


@dataclass(frozen=True, slots=True)
class Query:
    """A question. `arch` (`sm_90`, or a CPU's name) and `language` exclude pages; `families`, `bottleneck` lift them.

    `limit` is the largest number of passages, at most one of each page.
    """

    text: str
    arch: str | None = None
    language: str | None = None
    families: tuple[str, ...] = ()
    bottleneck: str | None = None
    limit: int = 5


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of one page: where it stands, what it says, and how each channel scored it."""

    id: str
    page: str
    title: str
    heading: str
    text: str
    source: str
    archs: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The passages, best first, and the mode that found them. Empty means that nothing matches, never that it broke."""

    mode: Mode
    passages: tuple[Passage, ...]
