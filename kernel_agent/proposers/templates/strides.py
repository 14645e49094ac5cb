"""Index maps of broadcasts and views, as mixed radix numbers.

A `Pattern` maps a flat index to another: its digits are (size, stride), the outermost first, and an index whose digits
are d_0, d_1, ... goes to the sum of d_i * stride_i. Digits of size one are dropped and neighbours that count on are
merged, so equal maps are equal tuples. The identity over n elements is ((n, 1),).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

Pattern = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Slab:
    """Where a tensor lies within a larger one: runs of `run` elements, `pitch` elements from one to the next.

    The first begins `begin` elements behind the larger tensor's first.
    """

    run: int
    pitch: int
    begin: int = 0

    def pattern(self, elements: int) -> Pattern:
        """Where the elements are found, so many in all."""
        return normal([(elements // self.run, self.pitch), (self.run, 1)])


def normal(digits: Iterable[tuple[int, int]]) -> Pattern:
    """The one spelling of a map."""
    merged: list[tuple[int, int]] = []
    for size, stride in digits:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tuple(merged)


@lru_cache(maxsize=1 << 14)
def broadcast(source: tuple[int, ...], target: tuple[int, ...]) -> Pattern:
    """Where element i of `target` is found in `source` (both row-major, aligned at their last dimensions)."""
    padded = (1,) * (len(target) - len(source)) + tuple(source)
    strides = [prod(padded[i + 1 :]) for i in range(len(padded))]
    return normal((t, 0 if s == 1 else stride) for s, t, stride in zip(padded, target, strides, strict=True))


@lru_cache(maxsize=1 << 14)
def compose_from(outer: Pattern, offset: int, inner: Pattern) -> tuple[Pattern, int] | None:
    """The map i -> inner[offset + outer[i]] as a pattern and an offset, or None where it isn't one of digits."""
    places = [prod(size for size, _ in inner[i + 1 :]) for i in range(len(inner))]
    reach = [offset // place % n * place for (n, _), place in zip(inner, places, strict=True)]
    start = sum(r // place * step for r, (_, step), place in zip(reach, inner, places, strict=True))
    digits: list[tuple[int, int]] = []
    for size, stride in outer:
        if stride == 0:
            digits.append((size, 0))
            continue
        pieces: list[tuple[int, int]] = []
        for i in reversed(range(len(inner))):
            (n, step), place = inner[i], places[i]
            if size == 1 or stride >= place * n:
                continue
            fits = (size - 1) * stride < place * n
            take = size if fits else max(place * n // stride, 1)
            if stride % place or (not fits and (place * n) % stride) or size % take:
                return None
            pieces.insert(0, (take, step * (stride // place)))
            reach[i] += (take - 1) * stride
            size, stride = size // take, stride * take
        if size != 1:
            return None
        digits.extend(pieces)
    if any(r >= place * n for r, (n, _), place in zip(reach, inner, places, strict=True)):
        return None  # one digit would carry into the next
    return normal(digits), start


def split(pattern: Pattern, columns: int) -> tuple[Pattern, Pattern] | None:
    """The map as one of rows plus one of columns (the last `columns` values), or None where a digit straddles them."""
    rows, inner, left = list(pattern), list[tuple[int, int]](), columns
    while left > 1:
        if not rows:
            return None
        size, stride = rows.pop()
        if size <= left:
            if left % size:
                return None
            inner.insert(0, (size, stride))
            left //= size
        else:
            if size % left:
                return None
            rows.append((size // left, stride * left))
            inner.insert(0, (left, stride))
            left = 1
    return normal(rows), normal(inner)
