"""Plain numbers and flags among a problem's inputs: where they stand, and what other values they may get in a check."""

from __future__ import annotations

import math
import random
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Value = bool | int | float | str | None
Path = tuple[int, ...]
SHRUNK = (0.55, 0.85)  # of a float: what it is multiplied with, or divided by
WHOLE = 1 << 31  # an int beyond it is a key or a seed, no count
CONTAINERS = ("list", "tuple", "dict", "record")


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain value in a tree: the way there, by the places in each container, and its name in words."""

    path: Path
    name: str
    value: Value

    @property
    def text(self) -> str:
        """As Python writes it, in short."""
        return reprlib.repr(self.value)


@dataclass(frozen=True, slots=True)
class Kept:
    """A plain value that no check varies, and why, in words."""

    plain: Plain
    why: str


def plain_values(structure: dict[str, Any]) -> list[Plain]:
    """The plain values among arguments by position and by keyword, in order; a dtype, say, counts as its name."""
    return list(_found(structure, (), ""))


def _found(structure: dict[str, Any], path: Path, way: str) -> Iterator[Plain]:
    kind, body = next(iter(structure.items()))
    if kind != "tensor" and kind not in CONTAINERS:
        yield Plain(path, way, body if kind == "value" else str(body))
    for place, (key, inner) in enumerate(_inner(kind, body)):
        yield from _found(inner, (*path, place), _way(way, path, key))


def _way(way: str, path: Path, key: Any) -> str:
    """The words for a part of what has the words `way`; the first two steps lead to an argument."""
    if len(path) < 2:
        return f"input {key}" if path else ""
    return f"{way}[{key!r}]"


def _inner(kind: str, body: Any) -> list[tuple[Any, dict[str, Any]]]:
    if kind == "record":
        return [(key, inner) for key, inner in body[2]]
    if kind == "dict":
        return [(key, inner) for key, inner in body]
    return list(enumerate(body)) if kind in CONTAINERS else []


def replaced(structure: dict[str, Any], changes: Sequence[tuple[Path, Value]]) -> dict[str, Any]:
    """The tree with other plain values in these places."""
    for path, value in changes:
        structure = _with(structure, path, value)
    return structure


def _with(structure: dict[str, Any], path: Path, value: Value) -> dict[str, Any]:
    if not path:
        return {"value": value}
    kind, body = next(iter(structure.items()))
    entries = body[2] if kind == "record" else body
    changed = list(entries)
    one = changed[path[0]]
    keyed = kind in ("dict", "record")
    changed[path[0]] = [one[0], _with(one[1], path[1:], value)] if keyed else _with(one, path[1:], value)
    return {kind: [*body[:2], changed] if kind == "record" else changed}


def others(value: Value, generator: random.Random) -> list[Value]:
    """Other values of the same type, the likeliest to be taken first; none for strings, None and what is no number.

    A flag is flipped. An int moves by one or two. A float is scaled, its sign kept; a whole one may move by one, too.
    """
    match value:
        case bool():
            return [not value]
        case int() if abs(value) < WHOLE:
            return [value + 1, value - 1, value + 2]
        case float() if math.isfinite(value):
            if value == 0.0:
                return [generator.uniform(0.1, 0.4)]
            whole = [value + math.copysign(1.0, value)] if value.is_integer() else []
            return [value * generator.uniform(*SHRUNK), value / generator.uniform(*SHRUNK), *whole]
    return []


def change(given: Sequence[tuple[Plain, Value]]) -> str:
    """In words, what the judge has put where."""
    each = [f"{plain.name}, which the judge changed from {plain.text} to {reprlib.repr(to)}" for plain, to in given]
    return " and ".join(each)


def kept_note(kept: Sequence[Kept]) -> str:
    """In words, which plain values are the same in every check."""
    each = ", ".join(f"{one.plain.name} ({one.plain.text}: {one.why})" for one in kept)
    return f"the same in every check, so that a kernel may be made for these values alone: {each}"
