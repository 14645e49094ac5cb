"""Declared tunables and how they are swept: which values to try next, given how fast the tried ones were.

A kernel declares one as a line at module level, `BLOCK = 256  # tune: 128, 256, 512`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import log, prod
from statistics import fmean
from typing import TypeGuard

Value = int | float | str | bool
Values = tuple[Value, ...]
"""One value for each tunable, in the order of their declaration."""

DECLARED = re.compile(r"\s*#\s*tune:\s*(.+?)\s*$")
MOST = 1024
"""Combinations that are looked at, and values a tunable may list."""


LONGEST, LARGEST = 200, 1e300
"""Characters and size of a value that is still one: Python writes out no integer of thousands of digits."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """A declared tunable: its place in the source (line from 0, first and last byte there), value and choices."""

    name: str
    place: tuple[int, int, int]
    value: Value
    choices: Values


def tunables(source: str) -> tuple[Tunable, ...]:
    """What a module declares, in order; a declaration that is no list of plain values is none."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    rows = _rows(source)
    return tuple(found for node in body if (found := _tunable(node, rows)))


def _rows(source: str) -> list[bytes]:
    """The lines with their ends, as Python counts them."""
    return source.encode().splitlines(keepends=True)


def _tunable(node: ast.stmt, rows: Sequence[bytes]) -> Tunable | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if node.end_lineno == node.lineno:
            row, end = rows[node.lineno - 1], value.end_col_offset or 0
        case _:
            return None
    told = DECLARED.fullmatch(row[end:].decode())
    if told is None:
        return None
    try:
        now, choices = ast.literal_eval(value), ast.literal_eval(f"[{told[1]}]")
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    others = tuple(dict.fromkeys(choice for choice in choices[:MOST] if _is_plain(choice)))
    if not _is_plain(now) or not others:
        return None
    return Tunable(name, (node.lineno - 1, value.col_offset, end), now, tuple(dict.fromkeys((now, *others))))


def _is_plain(value: object) -> TypeGuard[Value]:
    """Whether a value can be written into a source, and into a journal, and read back."""
    if isinstance(value, str):
        return len(value) <= LONGEST and not re.search("[\ud800-\udfff]", value)
    return isinstance(value, (int, float)) and -LARGEST < value < LARGEST


def with_values(source: str, declared: Sequence[Tunable], values: Values) -> str:
    """The source with other values in its declarations."""
    rows = _rows(source)
    for tunable, value in zip(declared, values, strict=True):
        line, start, end = tunable.place
        rows[line] = rows[line][:start] + repr(value).encode() + rows[line][end:]
    return b"".join(rows).decode()


def rungs(limit: int) -> Iterator[int]:
    """How many are tried at once: half of what may be tried, then half as many each time."""
    left = limit
    while left > 0:
        size = max(1, (left + 1) // 2)
        yield size
        left -= size


def following(declared: Sequence[Tunable], tried: Mapping[Values, float | None], limit: int) -> tuple[Values, ...]:
    """What to try next by successive halving, all at once; nothing where `limit` more tries or the values are used up.

    `tried` maps values to a speed, or to None where that kernel failed; the kernel's own values are among them, and
    `limit` counts the others. The first rung spreads over all values, later ones take the values of the better half
    alone, by what each was worth so far.
    """
    spent = len(tried) - 1
    if spent >= limit or all(speed is None for speed in tried.values()):
        return ()
    total = prod(len(tunable.choices) for tunable in declared)
    if total - 1 <= limit:
        return tuple(values for values in product(*(t.choices for t in declared)) if values not in tried)
    if not spent:
        return tuple(islice(_spread(declared), next(rungs(limit))))
    size, before = 0, 0
    for size in rungs(limit):
        if before >= spent:
            break
        before += size
    ranked = sorted((v for v in tried if tried[v] is not None), key=lambda values: -(tried[values] or 0.0))
    better = ranked[: max(1, (len(ranked) + 1) // 2)]
    kept = [tuple(dict.fromkeys(values[i] for values in better)) for i in range(len(declared))]
    wide = [*islice(product(*kept), MOST), *_neighbours(declared, ranked[0])]
    fresh = dict.fromkeys(values for values in wide if values not in tried)
    worth = _worth(tried)
    promising = sorted(fresh, key=lambda values: -sum(worth.get(item, 0.0) for item in enumerate(values)))
    return tuple(promising[: min(size, limit - spent)])


def _spread(declared: Sequence[Tunable]) -> Iterator[Values]:
    """Values far apart: in the n-th, each tunable has moved on from its own value, no two of them in step."""
    own = tuple(tunable.value for tunable in declared)
    seen = {own}
    longest = max(len(tunable.choices) for tunable in declared)
    for turn in range(longest * len(declared)):
        for step in range(1, longest):
            values = tuple(t.choices[(step * (turn * i + 1)) % len(t.choices)] for i, t in enumerate(declared))
            if values not in seen:
                seen.add(values)
                yield values
    yield from (values for values in islice(product(*(t.choices for t in declared)), MOST) if values not in seen)


def _neighbours(declared: Sequence[Tunable], values: Values) -> Iterator[Values]:
    """The values with one tunable a step up or down its list."""
    for i, tunable in enumerate(declared):
        choices = sorted(tunable.choices, key=lambda value: (str(type(value)), value))
        at = choices.index(values[i])
        for other in (*choices[at + 1 : at + 2], *choices[max(0, at - 1) : at]):
            yield (*values[:i], other, *values[i + 1 :])


def _worth(tried: Mapping[Values, float | None]) -> dict[tuple[int, Value], float]:
    """How much faster than the mean the kernels with each value were, as a logarithm; a failure is half as fast."""
    slowest = min(speed for speed in tried.values() if speed)
    speeds = {values: log(speed if speed else slowest / 2) for values, speed in tried.items()}
    mean = fmean(speeds.values())
    gains: dict[tuple[int, Value], list[float]] = {}
    for values, speed in speeds.items():
        for item in enumerate(values):
            gains.setdefault(item, []).append(speed - mean)
    return {item: sum(found) / (len(found) + 1) for item, found in gains.items()}
