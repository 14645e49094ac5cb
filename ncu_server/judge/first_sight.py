"""Whether a kernel keeps results of inputs that it has seen: its times for the same draws at first sight and known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

LONGER = 1.4  # and the hardware's first_sight_us: beyond both first sight costs more than noise
TRIES = 3  # before a doubt becomes an objection

Visits = Mapping[str, Sequence[float]]
"""Microseconds of a call at each visit of some draws, the first one first, by side."""


class Looks(Protocol):
    """What is timed of a kernel and those beside it: draws that none of them has seen, and one that all know. A time
    that is `slack_us` longer is noise."""

    @property
    def slack_us(self) -> float: ...

    async def draw(self) -> bool:
        """Draw anew what nobody has seen; False where there is none."""
        ...

    async def unseen(self) -> Visits:
        """Visits of draws that nobody has seen."""
        ...

    async def known(self) -> Visits:
        """Visits of the draw that all timed calls had."""
        ...

    async def anew(self) -> Visits | None:
        """Visits of that same draw, the candidate being in a process that has never seen it; None where it cannot be
        there."""
        ...


async def times_longer(looks: Looks, candidate: str) -> float:
    """How many times longer a candidate's calls surely take at first sight; at most LONGER where nothing is kept."""
    longer = []
    for _ in range(TRIES):
        if not await looks.draw() or (ratio := await _at_first_sight(looks, candidate)) <= LONGER:
            return 1.0
        longer.append(ratio)
    return min(longer)


async def _at_first_sight(looks: Looks, candidate: str) -> float:
    """Draws that were just seen are held against themselves. Who keeps results at a later visit alone shows beside the
    known draw; but another draw may just be more work, so that then the known one is held against itself as well."""
    slack_us = looks.slack_us
    known, unseen = await looks.known(), await looks.unseen()
    again = _beyond(
        {name: first / (min(rest) + slack_us) for name, (first, *rest) in unseen.items()},
        candidate,
    )
    than_known = _beyond({n: min(unseen[n]) / (min(known[n]) + slack_us) for n in unseen}, candidate)
    if again > LONGER or than_known <= LONGER:
        return max(again, than_known)
    if (anew := await looks.anew()) is None:
        return than_known
    return _beyond({n: anew[n][0] / (min(known[n]) + slack_us) for n in anew}, candidate)


def _beyond(longer: Mapping[str, float], candidate: str) -> float:
    """The candidate's ratio beyond that of those beside it."""
    return longer[candidate] / max(1.0, *(ratio for name, ratio in longer.items() if name != candidate))
