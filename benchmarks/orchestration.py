"""What the search and a suite themselves cost: scripted runs with instant replies and an instant judge.

    python -m benchmarks.orchestration [--candidates N] [--trials N] [--problems N] [--at-once N] [--result]

Prints CPU and wall milliseconds a candidate, everything between the proposer's answer and the next question included
(journal, tree, selection, briefs), and the seconds in which a journal of N trials is opened and ranked. Then it plays a
suite (templates, which ask neither a model nor the library; what the library costs stands in retrieval.md) with the
journal of each problem and the suite's record on disk. It prints the CPU time of the process a candidate, by how much
its memory (the resident set at its highest) grows for each problem under way (the difference to a suite whose problems
are played one at a time, in a process of its own), and the seconds in which the suite's table is read and written out.
With `--result` it writes benchmarks/results/orchestration.md too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter

from benchmarks.serving import RESULTS, ROOT, ended, machine
from kernel_agent.cli.report import line
from kernel_agent.interfaces import ignore
from kernel_agent.knowledge.library import open_library
from kernel_agent.run import tree
from kernel_agent.run.brief import Brief
from kernel_agent.run.journal import Journal, read
from kernel_agent.run.tree import EvaluationRecord, Ideas
from kernel_agent.run.types import Evaluation, Idea, Trial, digest
from kernel_agent.search.loop import Search
from kernel_agent.settings import load_settings
from kernel_agent.suite import store
from kernel_agent.suite.play import Play
from kernel_agent.suite.rows import rows_of
from kernel_agent.suite.table import markdown, table
from kernel_agent.suite.types import State
from tests.support.scripted_bench import verdict
from tests.support.scripted_run import DESCRIPTION, PROBLEM, InProcessBench, ScriptedProposer
from tests.support.scripted_suite import ScriptedPool, plan, problems

HEAD = "# What the search and a suite themselves cost\n\n"
HOW = """Instant replies, an instant judge in the same process, every journal on disk, no lookups in the library.

"""

PADDING = "# a line as long as those of real kernels, of which there are about a hundred\n" * 50
"""Four kilobytes: about what a candidate takes beside the problem."""


class Wordy(ScriptedProposer):
    """Sources of a real size."""

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
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


@dataclass(frozen=True, slots=True)
class SuiteCost:
    """What one process took for a suite: `peak_mb` is its largest resident set, `table_s` what the table took."""

    candidates: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    table_s: float


def suite_cost(count: int, at_once: int) -> SuiteCost:
    """Play a suite of so many problems in this process."""
    names = tuple(f"level{1 + number % 3}/{number}_relu" for number in range(count))
    played = plan(at_once=at_once, branching_factor=8, num_rounds=3, implementations_per_idea=2, sweep_evaluations=8)
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "suite"
        with store.Store.create(directory, played, problems(*names)) as kept:
            cpu, wall = asyncio.run(_played(kept))
        peak = peak_mb()
        began = time.monotonic()
        suite = store.read(directory)
        page = markdown(table("scripted", rows_of(suite)))
        table_s = time.monotonic() - began
        assert page.count("| improved |") >= count
        assert [suite.outcome(one).state for one in suite.problems] == [State.DONE] * count
        candidates = sum(len(read(one.directory(directory)).evaluations) for one in suite.problems)
    return SuiteCost(candidates, cpu, wall, peak, table_s)


def peak_mb() -> float:
    """The largest resident set of this program; getrusage counts that of the process that started it too."""
    rows = Path("/proc/self/status").read_text().splitlines()
    return int(next(row.split()[1] for row in rows if row.startswith("VmHWM:"))) / 1024


async def _played(kept: store.Store) -> tuple[float, float]:
    """CPU and wall seconds that the suite takes once the library is open."""
    async with open_library("lexical", ignore) as library:
        cpu, wall = time.process_time(), time.monotonic()
        await Play(kept, ScriptedPool(), library, line).play()
        return time.process_time() - cpu, time.monotonic() - wall


def apart(count: int, at_once: int) -> SuiteCost:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.orchestration", "--one", str(count), str(at_once)]
    done = asyncio.run(ended(command, ROOT))
    said = done.output.decode(errors="replace").strip()
    if done.code:
        sys.exit(f"a suite of {count} problems ended with exit code {done.code}: {said[-2000:]}")
    return SuiteCost(**json.loads(said.splitlines()[-1]))


def of_searches(candidates: int, trials: int) -> list[str]:
    count, wall_ms, cpu_ms = asyncio.run(searched(candidates))
    wall_s, cpu_s, size = opened(trials)
    return [
        f"{count} candidates searched: {wall_ms:.2f} ms each, of these {cpu_ms:.2f} ms CPU (bound: 5 ms)",
        f"a journal of {trials:,} judged trials ({size / 1e6:.0f} MB) opened and ranked: {wall_s:.2f} s, "
        f"of these {cpu_s:.2f} s CPU (bound: 1 s)",
    ]


def of_suites(count: int, at_once: int) -> list[str]:
    alone, many = apart(at_once, 1), apart(count, at_once)
    each = (many.peak_mb - alone.peak_mb) / (at_once - 1)
    return [
        f"{count} problems, {at_once} at once: {many.candidates:,} candidates, "
        f"{1e3 * many.cpu_s / many.candidates:.2f} ms CPU each (bound: 5 ms), {many.wall_s:.0f} s in all",
        f"memory at its highest {many.peak_mb:.0f} MB; {alone.peak_mb:.0f} MB where one is played at a time: "
        f"{each:.1f} MB for each problem more under way (bound: 20 MB)",
        f"a table of {count} problems: {many.table_s:.2f} s (bound: 2 s)",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--result", action="store_true")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(asdict(suite_cost(*args.one))))
        return
    where = f"{machine('cpu')}, load {os.getloadavg()[0]:.1f}"
    rows = [*of_searches(args.candidates, args.trials), *of_suites(args.problems, args.at_once)]
    print("\n".join(rows))
    if args.result:
        made = f"Made by `python -m benchmarks.orchestration` on {where}.\n"
        (RESULTS / "orchestration.md").write_text(HEAD + made + HOW + "".join(f"- {row}\n" for row in rows))


if __name__ == "__main__":
    main()
