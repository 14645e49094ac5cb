"""What the search itself costs: a run with instant replies and an instant judge, and the opening of a long journal.

    python -m benchmarks.orchestration [--candidates N] [--trials N]

Prints CPU and wall milliseconds a candidate, everything between the proposer's answer and the next question included
(journal, tree, selection, briefs), and the seconds in which a journal of N trials is opened and ranked. With
`--result` it writes benchmarks/results/orchestration.md too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter

from kernel_agent.run import tree
from kernel_agent.run.journal import Journal, read
from kernel_agent.run.tree import EvaluationRecord, Ideas
from kernel_agent.run.types import Evaluation, Idea, Trial, digest
from kernel_agent.search.loop import Search
from kernel_agent.settings import load_settings
from tests.support.scripted_bench import verdict
from tests.support.scripted_run import DESCRIPTION, PROBLEM, InProcessBench, ScriptedProposer

RESULT = Path(__file__).parent / "results" / "orchestration.md"
PADDING = "# a line as long as those of real kernels, of which there are about a hundred\n" * 50
"""Four kilobytes: about what a candidate takes beside the problem."""


class Wordy(ScriptedProposer):
    """Sources of a real size."""

    async def write(self, brief: tree.Brief, idea: Idea, attempt: int) -> str:
        return PADDING + await super().write(brief, idea, attempt)


async def searched(candidates: int) -> tuple[int, float, float]:
    """How many candidates a run of this size judged, and the wall and CPU milliseconds that each took."""
    rounds = 10
    settings = load_settings(
        branching_factor=max(1, candidates // rounds // 2),
        num_rounds=rounds,
        implementations_per_idea=2,
        max_repairs=0,
        flat_rounds=0,
    )
    with TemporaryDirectory() as folder, Journal.create(Path(folder) / "run") as journal:
        journal.begin(PROBLEM, settings)
        journal.describe(DESCRIPTION)
        run = journal.load()
        wall, cpu = time.perf_counter(), time.process_time()
        await Search(run, journal, Wordy(), InProcessBench()).play()
        count = len(run.trials) - 1
        return count, 1e3 * (time.perf_counter() - wall) / count, 1e3 * (time.process_time() - cpu) / count


def opened(trials: int) -> tuple[float, float, int]:
    """Wall and CPU seconds to open a journal of so many judged trials and rank them, and its bytes."""
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        with Journal.create(directory) as journal:
            journal.begin(PROBLEM, load_settings())
            journal.describe(DESCRIPTION)
            _fill(journal, trials)
        size = sum(path.stat().st_size for path in directory.iterdir())
        wall, cpu = time.perf_counter(), time.process_time()
        run = read(directory)
        assert len(tree.ranking(run)) > trials // 3
        return time.perf_counter() - wall, time.process_time() - cpu, size


def _fill(journal: Journal, trials: int) -> None:
    """Ten rounds of ideas with one trial each, all judged."""
    run, evaluation = journal.load(), TypeAdapter(Evaluation).validate_python
    journal._rows.execute("PRAGMA synchronous=OFF")
    for round in range(1, 11):
        names = [digest(round, number) for number in range(trials // 10)]
        journal.append(
            Ideas(round, tuple(Idea(n, round, run.reference.id, f"idea {n}", "because " * 20) for n in names))
        )
        for name in names:
            source = f"{PADDING}# {name}"
            journal.append(Trial(name, 0, 0, run.reference.id, source))
            journal.append(EvaluationRecord(digest(source), evaluation(verdict(source, ["eager"]))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--result", action="store_true")
    args = parser.parse_args()
    count, wall_ms, cpu_ms = asyncio.run(searched(args.candidates))
    wall_s, cpu_s, size = opened(args.trials)
    rows = [
        f"{count} candidates searched: {wall_ms:.2f} ms each, of these {cpu_ms:.2f} ms CPU (bound: 5 ms)",
        f"a journal of {args.trials:,} judged trials ({size / 1e6:.0f} MB) opened and ranked: {wall_s:.2f} s, "
        f"of these {cpu_s:.2f} s CPU (bound: 1 s)",
    ]
    print("\n".join(rows))
    if args.result:
        load = os.getloadavg()[0]
        where = f"{date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}"
        RESULT.write_text(
            "# What the search itself costs\n\n`python -m benchmarks.orchestration --result` on "
            + f"{where}: instant replies, an instant judge, the journal on disk.\n\n"
            + "".join(f"- {row}\n" for row in rows)
        )


if __name__ == "__main__":
    main()
