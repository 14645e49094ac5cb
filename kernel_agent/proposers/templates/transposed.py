"""Which pointwise work reads across the order of its output, and how its points are cut into tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kernel_agent.proposers.templates.strides import Pattern, split

READS = 16  # across at most: a thread asks for a vector of each before it uses the first


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
        at = next((n for n, (_, stride) in enumerate(pattern[:-1]) if stride == 1), None)
        if at is None:
            continue
        across, along = pattern[at][0], prod(size for size, _ in pattern[at + 1 :])
        parts = {i: _parts(one, across, along) for i, one in patterns.items()}
        if all(parts.values()):
            reads = tuple(i for i, part in parts.items() if part and _goes_across(part, across))
            if 0 < len(reads) <= READS:
                return Transposed(points // (across * along), across, along, reads)
    return None


def _parts(pattern: Pattern, across: int, along: int) -> tuple[Pattern, Pattern, Pattern] | None:
    halves = split(pattern, along)
    rest = split(halves[0], across) if halves else None
    return (*rest, halves[1]) if halves and rest else None


def _goes_across(part: tuple[Pattern, Pattern, Pattern], across: int) -> bool:
    _, wide, along = part
    return wide == ((across, 1),) and all(stride > 1 for _, stride in along)
