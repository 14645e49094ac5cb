"""Which pointwise work reads across the order of its output, and how its points are cut into tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_agent.proposers.templates.strides import Pattern, split

TILES = 6  # reads across at most that have a tile: what shared memory holds


@dataclass(frozen=True)
class Transposed:
    """Points as `outer` x `across` x `along`, in the output's order; the `reads` go across: neighbours there are
    neighbours in memory."""

    outer: int
    across: int
    along: int
    reads: tuple[int, ...]

    def parts(self, pattern: Pattern) -> tuple[Pattern, Pattern, Pattern]:
        """How a read goes by the outer points, across and along."""
        found = _parts(pattern, self.across, self.along)
        assert found is not None, "the pattern was found to split"
        return found


def transposed(patterns: Mapping[int, Pattern], points: int) -> Transposed | None:
    """The tiles of work that reads by these patterns, by the id of its read; None where nothing is read across."""
    for pattern in patterns.values():
        if len(pattern) < 2 or pattern[-2][1] != 1 or pattern[-1][1] < 2:
            continue
        across, along = pattern[-2][0], pattern[-1][0]
        parts = {i: _parts(one, across, along) for i, one in patterns.items()}
        if all(parts.values()):
            reads = tuple(i for i, part in parts.items() if part and _goes_across(part, across))
            return Transposed(points // (across * along), across, along, reads[:TILES])
    return None


def _parts(pattern: Pattern, across: int, along: int) -> tuple[Pattern, Pattern, Pattern] | None:
    halves = split(pattern, along)
    rest = split(halves[0], across) if halves else None
    return (*rest, halves[1]) if halves and rest else None


def _goes_across(part: tuple[Pattern, Pattern, Pattern], across: int) -> bool:
    _, wide, along = part
    return wide == ((across, 1),) and len(along) == 1 and along[0][1] > 1
