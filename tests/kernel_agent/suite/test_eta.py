"""When a suite will be done, held against suites that are played on paper."""

from __future__ import annotations

import heapq
import random
from statistics import mean

from kernel_agent.suite.board import Board, Lane
from kernel_agent.suite.eta import remaining_s
from kernel_agent.suite.grants import History
from kernel_agent.suite.types import Outcome, State


def played(durations: list[float], at_once: int) -> list[tuple[float, float]]:
    """The real time left and the one that the board says, whenever a problem of a suite ends."""
    board, waiting = Board(len(durations), at_once), list(enumerate(durations))
    running: list[tuple[float, str]] = []
    rows, now = [], 0.0
    while waiting or running:
        while waiting and len(running) < at_once:
            number, took = waiting.pop(0)
            heapq.heappush(running, (now + took, str(number)))
            board.begin(Lane(str(number), now))
        now, ended = heapq.heappop(running)
        board.end(Outcome(ended, State.DONE), History(ended, State.DONE), now)
        said = board.remaining_s(now)
        assert said is not None
        rows.append((now, said))
    return [(now - at, said) for at, said in rows]


def test_the_eta_gets_better_as_problems_end() -> None:
    """The mean error over forty suites, in seconds, after a tenth, half and nine tenths of their problems."""
    errors: dict[float, list[float]] = {0.1: [], 0.5: [], 0.9: []}
    for seed in range(40):
        draws = random.Random(seed)
        rows = played([draws.lognormvariate(3, 0.6) for _ in range(60)], at_once=4)
        for share, found in errors.items():
            real, said = rows[int(share * len(rows))]
            found.append(abs(real - said))
    early, half, late = (mean(found) for found in errors.values())
    assert early > half > late


def test_the_eta_of_problems_that_all_take_as_long_is_exact() -> None:
    rows = played([10.0] * 21, at_once=3)
    assert [(real, said) for real, said in rows[2::3]] == [(10.0 * left, 10.0 * left) for left in range(6, -1, -1)]


def test_before_any_has_ended_the_limit_of_one_problem_says_how_long() -> None:
    assert remaining_s([], [0.0], 3, 2) is None
    assert remaining_s([], [0.0], 3, 2, most_s=60.0) == 120.0
    assert remaining_s([], [], 0, 2) == 0.0


def test_a_suite_ends_with_its_minutes_at_the_latest() -> None:
    assert remaining_s([100.0], [], 10, 1, left_s=30.0) == 30.0


def test_a_problem_that_runs_longer_than_all_others_is_no_negative_time() -> None:
    assert remaining_s([10.0, 20.0], [500.0], 0, 2) == 0.0
    assert remaining_s([10.0, 20.0], [15.0], 0, 2) == 5.0
