"""What is asked of the library, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Mode = Literal["lexical", "hybrid"]
Kind = Literal["page", "kernel", "own"]
KINDS: tuple[Kind, ...] = ("page", "kernel", "own")
"""A page of the corpus, a kernel of the corpus, a document that the user added."""

SEARCHED: tuple[Kind, ...] = ("page", "own")
"""What a question is asked of by itself; kernels, long as they are, on demand."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question. `arch` (`sm_90`, or a CPU's name) and `language` exclude pages; `families`, `bottleneck` lift them.

    `limit` is the largest number of passages, at most one of each page; `without` names pages that are not wanted.
    """

    text: str
    arch: str | None = None
    language: str | None = None
    families: tuple[str, ...] = ()
    bottleneck: str | None = None
    limit: int = 5
    kinds: tuple[Kind, ...] = SEARCHED
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of one page: where it stands, what it says, how each channel scored it, for which slot it was found.

    `source` is the file: relative to the corpus, or the path of a document that the user added.
    """

    id: str
    page: str
    title: str
    heading: str
    text: str
    source: str
    archs: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    kind: Kind = "page"
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The passages, best first, and the mode that found them. Empty means that nothing matches, never that it broke."""

    mode: Mode
    passages: tuple[Passage, ...]


def clipped(text: str, size: int) -> str:
    """The text in at most about `size` characters: whole lines, and a last one that says how many are left out."""
    if len(text) <= size:
        return text
    kept = text[: text.rfind("\n", 0, size) if "\n" in text[:size] else size]
    return f"{kept}\n[... {len(text) - len(kept):,} more characters]"


LEAST = 400
"""Characters below which a clipped passage says too little to be given."""


def within(passages: tuple[Passage, ...], budget: int) -> tuple[Passage, ...]:
    """The passages in about `budget` characters, the first ones whole, the last one clipped where it must be."""
    kept = []
    for passage in passages:
        if budget < min(LEAST, len(passage.text)):
            break
        kept.append(replace(passage, text=clipped(passage.text, budget)))
        budget -= len(kept[-1].text)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Card:
    """What ranking and showing need to know of a page."""

    id: str
    title: str
    path: str
    archs: tuple[str, ...]
    languages: tuple[str, ...]
    families: tuple[str, ...]
    bottlenecks: tuple[str, ...]
    kind: Kind = "page"
