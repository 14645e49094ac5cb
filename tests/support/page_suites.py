"""Suites on disk to draw, their runs written without a judge.

python -m tests.support.page_suites DIRECTORY PROBLEMS    writes one
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_agent.run.budget import Limits
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.rows import NOT_COVERED
from kernel_agent.suite.store import Store
from kernel_agent.suite.types import Outcome, State, SuiteProblem
from tests.support.page_runs import write
from tests.support.scripted_run import MODEL

NAMES = ("ReLU", "Softmax", "LayerNorm", "GELU_Bias", "Matmul_Sum_Max", "Conv_depthwise_2D", "CrossEntropy")


def problems(count: int) -> tuple[SuiteProblem, ...]:
    """So many of two levels; every fourth has a note."""
    return tuple(
        SuiteProblem(
            f"level{1 + number % 2}/{number + 1}_{NAMES[number % len(NAMES)]}",
            f"{MODEL}# {number}\n",
            notes=("its inputs are degenerate",) if number % 4 == 3 else (),
        )
        for number in range(count)
    )


def write_suite(directory: Path, count: int = 8, seed: int = 1, ended: bool = True, trials: int = 9) -> Path:
    """A suite in a new directory. One of its problems failed and another is covered by no template; of one that has
    not ended the last but one problem is under way and the last waits."""
    plan = Plan("problems", {"target": "cuda", "provider": "templates"}, Limits(20.0, None, 90.0), at_once=2)
    every = problems(count)
    with Store.create(directory, plan, every) as store:
        for number, problem in enumerate(every):
            if not ended and number == count - 1:
                break
            store.append(_outcome(store.directory, problem, number, seed, trials, ended or number < count - 2))
        store.lasted(1800.0)
    return directory


def _outcome(suite: Path, problem: SuiteProblem, number: int, seed: int, trials: int, ended: bool) -> Outcome:
    if number == 1:
        return Outcome(problem.id, State.FAILED, "the problem's file does not define Model", "ProblemError")
    if number == 2:
        return Outcome(problem.id, State.FAILED, "no template covers aten.sort", NOT_COVERED)
    directory = problem.directory(suite)
    directory.parent.mkdir(parents=True, exist_ok=True)
    write(directory, trials, seed * 100 + number, finished=ended)
    return Outcome(problem.id, State.DONE if ended else State.RUNNING, minutes=12.0)


if __name__ == "__main__":
    write_suite(Path(sys.argv[1]), int(sys.argv[2]))
