"""Whether a kernel keeps results, by its times: simulated verdicts with fixed seeds, and cases of either kind."""

import random
from collections.abc import Callable

import pytest

from ncu_server.judge.first_sight import LONGER, TRIES, times_longer

pytestmark = pytest.mark.asyncio
Work = Callable[[random.Random], float]
WARM, VISITS, NOISE = 100, 4, 0.03
VERDICTS = 4000


def two_lengths(drawn: random.Random) -> float:
    return 20.0 * (drawn.randint(1, 50) + drawn.randint(1, 50))


def one_length(drawn: random.Random) -> float:
    return 10.0 * drawn.randint(1, 200)


def rarely_long(drawn: random.Random) -> float:
    return 2000.0 if drawn.random() < 0.1 else 100.0


class Process:
    """A candidate that answers at once from its `keeps`-th visit of a draw on; never where that is None."""

    def __init__(self, keeps: int | None, drawn: random.Random) -> None:
        self.keeps, self.drawn, self.visits = keeps, drawn, dict[float, int]()

    def call(self, work: float) -> float:
        self.visits[work] = self.visits.get(work, 0) + 1
        kept = self.keeps is not None and self.visits[work] >= self.keeps
        return (1.0 if kept else work) * self.drawn.gauss(1, NOISE)


class World:
    """Draws of which each is some work; the reference takes the longest for all, as one that pads does."""

    slack_us = 2.0

    def __init__(self, work: Work, draws: int, keeps: int | None, drawn: random.Random, anew: bool = True) -> None:
        self.work, self.draws, self.keeps, self.drawn, self.again = work, draws, keeps, drawn, anew
        self.timed, self.one = Process(keeps, drawn), self._drawn()
        for _ in range(WARM):
            self.timed.call(self.one)

    async def draw(self) -> bool:
        self.others = [self._drawn() for _ in range(self.draws)]
        return True

    async def known(self) -> dict[str, list[float]]:
        return self._visits(self.timed, [self.one])

    async def unseen(self) -> dict[str, list[float]]:
        return self._visits(self.timed, self.others)

    async def anew(self) -> dict[str, list[float]] | None:
        return self._visits(Process(self.keeps, self.drawn), [self.one]) if self.again else None

    def _drawn(self) -> float:
        """No two draws are the same, however much work they are."""
        return self.work(self.drawn) + self.drawn.random()

    def _visits(self, process: Process, draws: list[float]) -> dict[str, list[float]]:
        times = [sum(map(process.call, draws)) / len(draws) for _ in range(VISITS)]
        return {"candidate": times, "eager": [3000.0 * self.drawn.gauss(1, NOISE) for _ in range(VISITS)]}


async def rate(work: Work, draws: int, keeps: int | None = None, anew: bool = True, verdicts: int = VERDICTS) -> float:
    """The share of verdicts that are `suspect`."""
    drawn = random.Random(20_261_129)
    worlds = (World(work, draws, keeps, drawn, anew) for _ in range(verdicts))
    return sum([await times_longer(world, "candidate") > LONGER for world in worlds]) / verdicts


@pytest.mark.parametrize("draws", [1, 2, 8])
@pytest.mark.parametrize("work", [two_lengths, one_length, rarely_long])
async def test_an_honest_kernel_is_suspect_in_less_than_a_verdict_in_a_hundred(work: Work, draws: int) -> None:
    assert await rate(work, draws) < 0.01


async def test_beside_other_draws_alone_an_honest_kernel_is_often_suspect() -> None:
    assert await rate(two_lengths, 8, anew=False) > 0.1


@pytest.mark.parametrize("keeps", [2, 3, 10, 50])
@pytest.mark.parametrize("draws", [1, 2, 8])
@pytest.mark.parametrize("work", [two_lengths, one_length])
async def test_who_keeps_results_is_suspect_nearly_always(work: Work, draws: int, keeps: int) -> None:
    assert await rate(work, draws, keeps, verdicts=400) > 0.97


async def test_where_there_is_no_other_process_the_doubt_stands() -> None:
    assert await rate(lambda _: 500.0, 2, 10, anew=False, verdicts=50) == 1
    assert await rate(lambda _: 500.0, 2, None, anew=False, verdicts=50) == 0


async def test_one_try_below_the_bound_ends_the_doubt() -> None:
    drawn = random.Random(1)
    world = World(two_lengths, 2, None, drawn)
    assert await times_longer(world, "candidate") == 1.0
    assert TRIES > 1
