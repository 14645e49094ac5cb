"""A run with nothing random in it: a proposer that follows from hashes, and a bench in this process or as a server.

python -m tests.support.scripted_run DIRECTORY LOG    plays or resumes a run against tests/support/scripted_bench.py
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from kernel_agent.bench.client import BenchClient
from kernel_agent.errors import Unprofiled
from kernel_agent.interfaces import OnProgress, ignore
from kernel_agent.run import tree
from kernel_agent.run.brief import Brief
from kernel_agent.run.events import Event, Progress, TrialJudged
from kernel_agent.run.journal import Journal, begun
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.types import (
    Baseline,
    Description,
    Device,
    Evaluation,
    Idea,
    Problem,
    Profile,
    Status,
    Timing,
    Trial,
    digest,
)
from kernel_agent.search.loop import Search
from kernel_agent.settings import Settings, load_settings
from tests.support.paths import ROOT
from tests.support.scripted_bench import COMPILE_US, EAGER_US, GRAPH, PEAKS, kernel_in, verdict

BENCH = ROOT / "tests" / "support" / "scripted_bench.py"
MODEL = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
LETTERS = str.maketrans("0123456789", "ghijklmnop")
PROBLEM = Problem("relu", "class Model: ...\n", "cpu")
DESCRIPTION = Description(
    device=Device("cpu", "scripted", "x86_64", 2, 10.0, peaks=PEAKS["peaks"]),
    graph=GRAPH,
    graph_error=None,
    flops=4096.0,
    bytes=32768.0,
    limit_us=3.2,
    baselines={
        "eager": Timing(EAGER_US, EAGER_US * 0.99, EAGER_US * 1.01, 20, "cold", EAGER_US * 0.9),
        "compile": Timing(COMPILE_US, COMPILE_US * 0.99, COMPILE_US * 1.01, 20, "cold", COMPILE_US * 0.9),
    },
)


def small_settings(**given: object) -> Settings:
    return load_settings(**{"branching_factor": 4, "num_rounds": 3, "implementations_per_idea": 3} | given)


class ScriptedProposer:
    """Ideas and sources by hash. Attempt 1 of a round's ideas is one source, attempt 2 has tunables; half of the
    repairs give up."""

    def __init__(self) -> None:
        self.asked: list[Brief] = []

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        self.asked.append(brief)
        other = brief.second_parent.trial.id if brief.second_parent else None
        marks = [digest(number, brief.round, brief.parent.id, other).translate(LETTERS) for number in range(count)]
        titles = [f"{mark} differs" for mark in marks]
        return [Idea("", 0, "", title, "because") for title in titles]

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        self.asked.append(brief)
        if attempt == 1:
            return f"# round {idea.round} attempt {attempt}\n"
        tunables = "A = 1  # tune: 1, 2, 3, 4\nB = 1  # tune: 1, 2, 3\n" if attempt == 2 else ""
        return f"# {idea.title} attempt {attempt}\n{tunables}"

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        return None if int(digest(trial.source), 16) % 2 else f"{trial.source}# repaired: {evaluation.status}\n"

    async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        return f"{trial.source}# escalated\n"


class InProcessBench:
    """The scripted verdicts without a server; `judged`, `confirmed` and `profiled` list the sources in the order of
    the calls; `unprofiled` is why there is no profiler."""

    def __init__(self, unprofiled: str = "") -> None:
        self.judged: list[str] = []
        self.confirmed: list[str] = []
        self.profiled: list[list[str]] = []
        self.unprofiled = unprofiled
        self.breaks: str | None = None
        """What fails where the delivered file is tried by itself."""

    async def baselines(
        self, problem: Problem, names: Sequence[str], on_progress: OnProgress = ignore
    ) -> tuple[Baseline, ...]:
        return tuple(Baseline(name, DESCRIPTION.baselines[name]) for name in names)

    async def evaluate(
        self, problem: Problem, source: str, on_progress: OnProgress = ignore, heeds_compiler: bool = False
    ) -> Evaluation:
        if heeds_compiler and "# spills" in source:
            return Evaluation(Status.POOR_BUILD, "rows: 255 registers a thread and 512 bytes of spill stores")
        self.judged.append(source)
        await asyncio.sleep(0)
        return evaluation_of(source, "eager")

    async def confirm(
        self,
        problem: Problem,
        source: str,
        baselines: Iterable[str],
        on_progress: OnProgress = ignore,
    ) -> Evaluation:
        self.confirmed.append(kernel_in(source))
        return evaluation_of(self.second(kernel_in(source)), *baselines)

    async def verify(self, problem: Problem, source: str, on_progress: OnProgress = ignore) -> tuple[ModuleCheck, ...]:
        return tuple(
            ModuleCheck(name, name != self.breaks, "so it was ordered") for name in ("builds", "agrees", "compile")
        )

    def second(self, source: str) -> str:
        """The source whose verdict is the second judgement's."""
        return source

    async def profile(
        self, problem: Problem, sources: Sequence[str], on_progress: OnProgress = ignore
    ) -> list[Profile]:
        self.profiled.append(list(sources))
        await asyncio.sleep(0)
        if self.unprofiled:
            raise Unprofiled(self.unprofiled)
        return [Profile("counters", "memory", f"of {digest(source)}", ("spills",)) for source in sources]


EVALUATION = TypeAdapter(Evaluation)


def evaluation_of(source: str, *baselines: str) -> Evaluation:
    return EVALUATION.validate_python(verdict(source, list(baselines)))


def standings(run: tree.Run) -> list[list[object]]:
    """What must be equal between a broken and an unbroken run."""
    return [[trial.id, trial.source_id, run.speedup(trial)] for trial in tree.ranking(run)]


async def main(directory: Path, log: Path) -> None:
    """Play or resume, with a line on stdout at each measurement and each new verdict: moments to be killed at."""

    def tell(event: Event) -> None:
        match event:
            case Progress(message="timing") | TrialJudged(kept=False):
                print(type(event).__name__, flush=True)

    there = begun(directory)
    server = f"python {ROOT / 'tests' / 'support' / 'scripted_bench.py'} --log {log} --delay 0.01"
    with Journal.open(directory) if there else Journal.create(directory) as journal:
        async with BenchClient(server, directory) as bench:
            if not there:
                journal.begin(PROBLEM, small_settings())
            if not journal.described:
                journal.describe(await bench.describe(journal.problem))
            run = journal.load()
            winner = await Search(run, journal, ScriptedProposer(), bench, observe=tell).play()
    (directory / "standings.json").write_text(json.dumps([winner.id, standings(run)]))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
