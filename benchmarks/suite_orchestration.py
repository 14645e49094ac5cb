"""What a suite itself costs the thinking process: scripted problems with an instant judge, many under way at once.

    python -m benchmarks.suite_orchestration [--problems N] [--at-once N] [--result]

Plays a suite of N problems (templates, no model, a library that knows nothing: what it costs stands in retrieval.md)
with the journal of each and the suite's record on disk. Prints the CPU time of the process a candidate, everything
included, and by how much its memory (the resident set at its highest) grows for each problem under way: the difference
to a suite whose problems are played one at a time, in a process of its own. With `--result` it writes
benchmarks/results/suite-orchestration.md too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from kernel_agent.cli.report import line
from kernel_agent.run.journal import read as run_in
from kernel_agent.suite.play import Play
from kernel_agent.suite.store import Store, read
from kernel_agent.suite.types import State
from rag import Answer, Situation
from tests.support.scripted_suite import ScriptedPool, plan, problems

RESULT = Path(__file__).parent / "results" / "suite-orchestration.md"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took for a suite; `peak_mb` is its largest resident set, `before_mb` that as it began."""

    problems: int
    at_once: int
    candidates: int
    cpu_s: float
    wall_s: float
    before_mb: float
    peak_mb: float


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(count: int, at_once: int) -> Cost:
    """Play a suite of so many problems in this process."""
    names = tuple(f"level{1 + number % 3}/{number}_relu" for number in range(count))
    settings = {"branching_factor": 8, "num_rounds": 3, "implementations_per_idea": 2, "sweep_evaluations": 8}
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "suite"
        with Store.create(directory, plan(at_once=at_once, **settings), problems(*names)) as store:
            before, cpu, wall = peak_mb(), time.process_time(), time.monotonic()
            asyncio.run(_played(store))
            cpu, wall, peak = time.process_time() - cpu, time.monotonic() - wall, peak_mb()
        suite = read(directory)
        assert [suite.outcome(one).state for one in suite.problems] == [State.DONE] * count
        candidates = sum(len(run_in(one.directory(directory)).evaluations) for one in suite.problems)
    return Cost(count, at_once, candidates, cpu, wall, before, peak)


class Nothing:
    """A library that knows nothing."""

    mode, library = "lexical", None

    def consult(self, situation: Situation) -> Answer:
        return Answer("lexical", ())

    def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
        return []


async def _played(store: Store) -> None:
    await Play(store, ScriptedPool(), Nothing(), line).play()


def apart(count: int, at_once: int) -> Cost:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.suite_orchestration", "--one", str(count), str(at_once)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--result", action="store_true")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(asdict(measured(*args.one))))
        return
    alone, many = apart(args.at_once, 1), apart(args.problems, args.at_once)
    each = (many.peak_mb - alone.peak_mb) / (args.at_once - 1)
    rows = [
        f"{many.problems} problems, {many.at_once} at once: {many.candidates:,} candidates, "
        f"{1e3 * many.cpu_s / many.candidates:.2f} ms CPU each (bound: 5 ms), {many.wall_s:.0f} s in all",
        f"memory at its highest {many.peak_mb:.0f} MB; {alone.peak_mb:.0f} MB where one is played at a time: "
        f"{each:.1f} MB for each problem more under way (bound: 20 MB)",
    ]
    print("\n".join(rows))
    if args.result:
        load = os.getloadavg()[0]
        where = f"{date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}"
        RESULT.write_text(
            "# What a suite itself costs the thinking process\n\n"
            f"`python -m benchmarks.suite_orchestration --result` on {where}: scripted problems that templates\n"
            "cover, an instant judge in the same process, every journal on disk, no lookups in the library.\n\n"
            + "".join(f"- {row}\n" for row in rows)
        )


if __name__ == "__main__":
    main()
