"""When a suite will be done, as far as its finished problems say."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def remaining_s(
    finished_s: Sequence[float],
    running_s: Sequence[float],
    waiting: int,
    at_once: int,
    most_s: float | None = None,
    left_s: float | None = None,
) -> float | None:
    """Seconds until all problems are played; None where nothing is known yet.

    `finished_s` is how long the finished ones took, `running_s` for how long others have run. A problem is expected to
    take the mean of those that finished, one that has run for longer than that the mean of those that took longer
    still; before any has finished, `most_s`, which one may take. The suite ends in `left_s` at the latest.
    """
    usual = sum(finished_s) / len(finished_s) if finished_s else most_s
    if usual is None:
        return left_s if running_s or waiting else 0.0

    def rest(ran: float) -> float:
        longer = [one for one in finished_s if one > ran]
        if longer:
            return sum(longer) / len(longer) - ran
        return max(usual - ran, (most_s - ran) / 2 if most_s is not None else 0.0, 0.0)

    places = sorted(map(rest, running_s))
    places += [0.0] * max(at_once - len(places), 0)
    heapq.heapify(places)
    for _ in range(waiting):
        heapq.heappush(places, heapq.heappop(places) + usual)
    found = max(places, default=0.0)
    return found if left_s is None else min(found, left_s)
