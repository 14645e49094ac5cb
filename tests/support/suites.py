"""A small suite on disk, its runs played against the scripted bench, and that bench over stdio."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kernel_agent import KernelAgent
from kernel_agent.bench.client import BenchClient
from kernel_agent.errors import KernelAgentError
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.store import Store
from kernel_agent.suite.types import Outcome, State, SuiteProblem
from tests.support.scripted_run import BENCH, MODEL

RELU = SuiteProblem("level1/19_ReLU", MODEL)
SORT = SuiteProblem("level1/77_Sort", f"{MODEL}# uncovered\n")
GELU = SuiteProblem("level2/26_GELU", f"{MODEL}# another\n# no compile\n", notes=("a note",))
PROBLEMS = (RELU, SORT, GELU)


def command(log: Path, *more: str) -> str:
    """The scripted bench as a server to start."""
    return shlex.join(["python", str(BENCH), "--log", str(log), *more])


@asynccontextmanager
async def scripted(directory: Path, *more: str) -> AsyncIterator[BenchClient]:
    """The scripted bench over stdio; what it was asked is in `directory`/bench.log."""
    directory.mkdir(parents=True, exist_ok=True)
    async with BenchClient(command(directory / "bench.log", *more), directory) as client:
        yield client


async def played(directory: Path, problems: Sequence[SuiteProblem] = PROBLEMS) -> None:
    """A suite whose problems are played by templates, one after the other."""
    with Store.create(directory, Plan("problems", {"target": "cpu"}), tuple(problems)) as store:
        async with scripted(directory / "server") as pool:
            for problem in problems:
                store.append(await _outcome(problem, problem.directory(directory), pool))


async def _outcome(problem: SuiteProblem, directory: Path, pool: BenchClient) -> Outcome:
    agent = KernelAgent(
        provider="templates", target="cpu", branching_factor=2, num_rounds=1, retrieval="lexical", pool=pool
    )
    try:
        await agent.generate_kernel(problem.code, name=problem.id.replace("/", "-"), run_directory=directory)
    except KernelAgentError as fault:
        return Outcome(problem.id, State.FAILED, str(fault), type(fault).__name__, minutes=3.0)
    return Outcome(problem.id, State.DONE, minutes=3.0)
