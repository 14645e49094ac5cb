"""What is asked of the library, and what it answers."""

from __future__ import annotations

import re
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


def in_parts(text: str, size: int) -> str:
    """The first paragraphs of the text that take at most `size` characters, and a line that says how much is left out.

    A fenced block stays whole, and so does a formula with the sentence that leads up to it; empty where not even the
    first paragraph fits.
    """
    if len(text) <= size:
        return text
    kept, fenced, at = 0, False, 0
    for row in f"{text}\n".splitlines(keepends=True):
        fenced ^= row.lstrip().startswith(("```", "~~~"))
        at += len(row)
        before = text[:at].rstrip()
        if not row.strip() and not fenced and len(before) + 40 <= size and not before.endswith(":"):
            kept = len(before)
    return f"{text[:kept]}\n[... {len(text) - kept:,} more characters]" if kept else ""


def prose(text: str) -> str:
    """A page without its code: each fenced block becomes a line that says how long it is."""
    return FENCED.sub(lambda block: f"[{block[0].count(chr(10)) - 1} lines of code]", text)


FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

LEAST = 400
"""Characters below which a clipped passage says too little to be given."""


def within(passages: tuple[Passage, ...], budget: int) -> tuple[Passage, ...]:
    """The passages in `budget` characters, in their order. What is too long for what is left is given in whole
    paragraphs; a kernel, or a page that an idea names, not at all."""
    kept = []
    for passage in passages:
        text = passage.text if len(passage.text) <= budget else ""
        if not text and passage.kind != "kernel" and passage.slot != "named" and budget >= LEAST:
            text = in_parts(passage.text, budget)
        if text:
            kept.append(replace(passage, text=text))
            budget -= len(text)
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
