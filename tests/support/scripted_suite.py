"""A suite with nothing random in it: small problems that templates cover, judged in this process or by a server.

python -m tests.support.scripted_suite DIRECTORY LOG    plays or resumes one against tests/support/scripted_bench.py
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from kernel_agent.bench.client import BenchClient
from kernel_agent.interfaces import OnProgress, Pool, ignore
from kernel_agent.knowledge.library import open_library
from kernel_agent.run.budget import Limits
from kernel_agent.run.events import Event
from kernel_agent.run.types import Description, Device, Problem
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.play import Play, Words
from kernel_agent.suite.store import Store, begun
from kernel_agent.suite.types import SuiteProblem
from tests.support.scripted_run import BENCH, DESCRIPTION, MODEL, InProcessBench, small_settings

NAMES = ("level1/1_relu", "level1/2_relu", "level1/3_relu", "level2/1_relu", "level2/2_relu")


def problems(*names: str, more: str = "") -> tuple[SuiteProblem, ...]:
    """Problems of these ids, each with a line of its own."""
    return tuple(SuiteProblem(name, f"{MODEL}# {name}\n{more}") for name in names)


def plan(limits: Limits | None = None, even: bool = False, at_once: int = 2, **given: object) -> Plan:
    """A small search by templates for each problem."""
    usual = {"provider": "templates", "target": "cpu", "retrieval": "lexical", "experience": False}
    small = {"num_rounds": 2, "implementations_per_idea": 1, "sweep_evaluations": 2}
    settings = small_settings(**usual | small | given).keyless()
    return Plan("scripted", settings, limits or Limits(), even, at_once)


class ScriptedPool(InProcessBench):
    """The scripted verdicts as a pool of one device; nothing is started."""

    async def available(self) -> frozenset[str]:
        return frozenset({"cpu"})

    async def describe(
        self, problem: Problem, on_progress: OnProgress = ignore, baselines: Iterable[str] | None = None
    ) -> Description:
        return replace(DESCRIPTION, baselines={"eager": DESCRIPTION.baselines["eager"]}, unmeasured=("compile",))

    def like(self, device: Device) -> Self:
        return self

    @property
    def width(self) -> int:
        return 1


async def play(
    store: Store, pool: Pool, words: Words = lambda _: None, clock: Callable[[], float] = time.monotonic
) -> Play:
    """Play a store's suite to its end."""
    async with open_library("lexical", ignore) as library:
        played = Play(store, pool, library, words, clock=clock)
        await played.play()
    return played


async def main(directory: Path, log: Path, names: Sequence[str] = NAMES) -> None:
    """Play or resume, with a line on stdout at each event: moments to be killed at."""

    def words(event: Event) -> str:
        print(type(event).__name__, flush=True)
        return type(event).__name__

    there = begun(directory)
    server = f"python {BENCH} --log {log} --delay 0.005"
    with Store.open(directory) if there else Store.create(directory, plan(), problems(*names)) as store:
        async with BenchClient(server, directory) as bench:
            await play(store, bench, words)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
