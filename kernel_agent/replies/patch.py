"""A reply that changes the parent instead of repeating it: unified diffs, and blocks of search and replace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_agent.llm.model import Malformed

SEARCH = re.compile(r"<{5,} ?(?:SEARCH|ORIGINAL|HEAD)?\b.*")
DIVIDER = re.compile(r"={5,}\s*")
REPLACE = re.compile(r">{5,} ?(?:REPLACE|UPDATED|HEAD)?\b.*")
HEAD = re.compile(
    r"@@.*|\*\*\* (?:Update|Add|Begin|End|Delete)\b.*|diff --git .*|index [0-9a-f]+\.\..*|(?:---|\+\+\+) \S.*"
)


@dataclass(frozen=True, slots=True)
class Hunk:
    """Rows of the parent and what stands in their place; `line` is the row of the text where it begins."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int


def is_patch(code: str, language: str = "") -> bool:
    """Whether the code is a change to another text."""
    rows = code.split("\n")
    if any(SEARCH.fullmatch(row) for row in rows) and any(REPLACE.fullmatch(row) for row in rows):
        return True
    marked = [row for row in rows if row[:1] in ("+", "-") and not HEAD.fullmatch(row)]
    headed = any(row.startswith("@@") or row.startswith("*** ") for row in rows)
    return bool(marked) and (headed or language in ("diff", "patch", "udiff"))


def hunks(code: str) -> list[Hunk]:
    """The changes in order."""
    rows = code.split("\n")
    found = _searches(rows) if any(SEARCH.fullmatch(row) for row in rows) else _unified(rows)
    return [hunk for hunk in found if hunk.old != hunk.new]


def applied(parent: str, changes: list[Hunk], above: int = 0) -> str:
    """The parent with its changes. Each has to match one place exactly; the line numbers of a diff are not trusted.

    `above` is what is added to a hunk's line for a reader. Raises Malformed where one matches none or several.
    """
    rows = parent.split("\n")
    for hunk in changes:
        places = _places(rows, hunk.old)
        if len(places) != 1:
            where = f"its change at line {hunk.line + above}"
            what = (
                "adds lines without one of the parent's beside them"
                if not hunk.old
                else (f"fits {len(places)} places of the parent" if places else "fits no place of the parent")
            )
            raise Malformed(f"it is a diff against the parent, not the whole module, and {where} {what}")
        start = places[0]
        rows[start : start + len(hunk.old)] = hunk.new
    return "\n".join(rows)


def _places(rows: list[str], old: tuple[str, ...]) -> list[int]:
    if not old:
        return []
    bare, wanted = [row.rstrip() for row in rows], [row.rstrip() for row in old]
    return [at for at in range(len(rows) - len(old) + 1) if bare[at : at + len(old)] == wanted]


def _searches(rows: list[str]) -> Iterator[Hunk]:
    old: list[str] = []
    new: list[str] = []
    into: list[str] | None = None
    start = 0
    for number, row in enumerate(rows, 1):
        if SEARCH.fullmatch(row):
            old, new, start = [], [], number
            into = old
        elif into is old and DIVIDER.fullmatch(row):
            into = new
        elif into is new and REPLACE.fullmatch(row):
            yield Hunk(tuple(old), tuple(new), start)
            into = None
        elif into is not None:
            into.append(row)


def _unified(rows: list[str]) -> Iterator[Hunk]:
    held: list[str] = []
    start = 1
    for number, row in enumerate([*rows, "@@"], 1):
        if not HEAD.fullmatch(row):
            held.append(row)
            continue
        if any(one[:1] in ("+", "-") for one in held):
            yield _hunk(held, start)
        held, start = [], number + 1


def _hunk(rows: list[str], start: int) -> Hunk:
    while rows and not rows[-1].strip():
        rows = rows[:-1]
    told = [row for row in rows if not row.startswith("\\")]
    old = tuple(row[1:] for row in told if row[:1] != "+")
    new = tuple(row[1:] for row in told if row[:1] != "-")
    return Hunk(old, new, start)
