"""How long the prompts of the recorded runs are: python -m benchmarks.prompt_cost [--write] [--beside TREE].

Plays each cassette of tests/cassettes in this process. A bench without a device answers from what was measured when
the cassette was recorded (benchmarks/prompt_problems): each kernel's first version fails in its turn to build, to run
or to be right, so that repairs are asked for; its repair passes. Problems of others are replaced by ones of ours with
the same operators and sizes. `--keep` writes every prompt to a folder, `--beside` measures another checkout's prompts
as well, such as that of the commit before.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter

from benchmarks.serving import table
from kernel_agent.errors import NotCovered
from kernel_agent.interfaces import OnProgress, Proposer, ignore
from kernel_agent.knowledge.library import open_library
from kernel_agent.llm import cassette
from kernel_agent.llm.model import Model, Question, Reply
from kernel_agent.proposers.model_proposer import ModelProposer
from kernel_agent.proposers.seeded import Seeded
from kernel_agent.proposers.templates.proposer import Templates
from kernel_agent.run.journal import Journal
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.types import (
    Baseline,
    Description,
    Diagnostic,
    Evaluation,
    Interval,
    Problem,
    Profile,
    Status,
    Timing,
    Versus,
)
from kernel_agent.search.loop import Search
from kernel_agent.settings import Settings, load_settings

HERE = Path(__file__).parent
ROOT = HERE.parent
CASSETTES = ROOT / "tests" / "cassettes"
PROBLEMS = HERE / "prompt_problems"
RESULTS = HERE / "results" / "prompt-cost.md"
KINDS = ("ideas", "code", "repair")
MENDED = "\n# mended\n"
Lengths = dict[str, dict[str, list[int]]]
"""The characters of each prompt, by cassette and kind."""


def problem_of(name: str) -> tuple[str, Description]:
    """The text of a cassette's problem, or of the one that stands in for it, and what was measured of it."""
    places = (PROBLEMS / f"{name}.py", ROOT / "examples" / f"{name}.py", CASSETTES / f"{name}.py")
    text = next(place.read_text() for place in places if place.exists())
    described = TypeAdapter(Description).validate_json((PROBLEMS / f"{name}.json").read_text())
    return text, described


@dataclass(slots=True)
class Recorded:
    """Answers from a cassette; a repair, of which there is none in it, gives the candidate with a remark. All that was
    asked is kept: the role and the prompt, its system part first."""

    answers: cassette.Replay
    remedy: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def answer(self, question: Question) -> Reply:
        """Raises NotRecorded where a cassette has no such place."""
        self.asked.append((question.role or "other", "\n".join(said for _, said in question.talk)))
        if question.role != "repair":
            return await self.answers.answer(question)
        return Reply(f"```python\n{_candidate(question.talk[-1][1])}{MENDED}```", "nobody")

    async def close(self) -> None:
        pass


def _candidate(prompt: str) -> str:
    """The candidate that a repair's prompt quotes."""
    head = next(row for row in prompt.splitlines() if row.startswith("<<<data ") and row.endswith(" the candidate"))
    mark = head.split()[1]
    return prompt.partition(f"{head}\n")[2].partition(f"\n>>>data {mark}")[0]


class Bench:
    """Verdicts that follow from the number of a kernel and its source's hash; nothing runs."""

    def __init__(self, known: Description) -> None:
        self._known = known

    async def evaluate(
        self, problem: Problem, source: str, on_progress: OnProgress = ignore, heeds_compiler: bool = False
    ) -> Evaluation:
        if MENDED.strip() in source or "# kernel: " in source:
            return self._passed(source, ("eager",))
        number = int(hashlib.sha256(source.encode()).hexdigest(), 16)
        return FAILURES[number % len(FAILURES)]

    async def confirm(
        self, problem: Problem, source: str, baselines: Iterable[str], on_progress: OnProgress = ignore
    ) -> Evaluation:
        return self._passed(source, tuple(baselines))

    async def baselines(
        self, problem: Problem, names: Sequence[str], on_progress: OnProgress = ignore
    ) -> tuple[Baseline, ...]:
        return ()

    async def verify(self, problem: Problem, source: str, on_progress: OnProgress = ignore) -> tuple[ModuleCheck, ...]:
        return (ModuleCheck("builds", True), ModuleCheck("agrees", True))

    async def profile(
        self, problem: Problem, sources: Sequence[str], on_progress: OnProgress = ignore
    ) -> list[Profile]:
        return [PROFILE for _ in sources]

    def _passed(self, source: str, baselines: tuple[str, ...]) -> Evaluation:
        eager = self._known.baselines["eager"].median_us
        share = int(hashlib.sha256(source.encode()).hexdigest(), 16) % 1000 / 1000
        time_us = eager / (1.5 + share)
        timing = Timing(time_us, time_us * 0.99, time_us * 1.01, 40, "cold", time_us)
        versus = tuple(
            Versus(name, self._known.baselines[name], _around(name, self._known, time_us)) for name in baselines
        )
        return Evaluation(Status.PASSED, "", timing, versus, 1.4)


def _around(name: str, known: Description, time_us: float) -> Interval:
    ratio = known.baselines[name].median_us / time_us
    return Interval(ratio * 0.99, ratio, ratio * 1.01)


FAILURES = (
    Evaluation(
        Status.BUILD_ERROR,
        'cuda.cu(41): error: identifier "consume" is undefined\n1 error detected in the compilation of "cuda.cu".',
        diagnostics=(Diagnostic("error", 'identifier "consume" is undefined', "cuda.cu", 41, "consume(v);", 12),),
    ),
    Evaluation(
        Status.WRONG,
        "output 0 on inputs as drawn: 4,096 of 131,072 elements are off by more than 64 units, the largest by 3.1e+06\n"
        "the elements that are off lie in [1008:1024, 0:4096]; expected 0.1934 at [1008, 0], got 0",
        error=3.1e6,
    ),
    Evaluation(
        Status.RUN_ERROR,
        "in the first call: RuntimeError: the kernel was not launched: invalid configuration argument\n"
        'Traceback (most recent call last):\n  File "candidate.py", line 90, in forward\n    kernel.run(x, out)\n',
    ),
)
PROFILE = Profile(
    rung="counters",
    bound="memory",
    why="DRAM 71 % of peak, compute 18 %",
    troubles=("low_occupancy", "tail"),
    findings=(
        "half of the warps that fit are resident: registers are the limit (line 31: v[i] = x[start + i * BLOCK];)",
        "1.3 waves: the last one keeps 30 % of the SMs busy",
    ),
    stalls=("61 % long_scoreboard: waiting for global or local memory", "14 % barrier: waiting for other warps"),
    rules=("Achieved occupancy (up to 21 % of the time): the difference to the theoretical one is due to the tail.",),
    hot_lines=(
        "38 % of samples at line 31: v[i] = x[start + i * BLOCK]; [long_scoreboard 92 %]",
        "17 % of samples at line 44: __syncthreads(); [barrier 81 %]",
    ),
    metrics=(
        "longest kernel: rows",
        "161.2 us at 1.59 GHz, the profiler's clock",
        "occupancy 47 %",
        "possible occupancy 50 %",
        "96 registers a thread",
        "DRAM 71 % of peak",
        "DRAM 2139 GB/s",
        "L2 hit rate 31 %",
    ),
)


async def prompts(path: Path, directory: Path) -> list[tuple[str, str]]:
    """The role and the text of each prompt of a cassette's run, which is played in a directory."""
    tape = cassette.read(path)
    name, target = tape.subject.name, tape.subject.target
    text, known = problem_of(name)
    problem = Problem(name, text, target)
    settings = load_settings(**tape.settings, provider="templates").model_copy(update={"max_repairs": 1})
    answers = Recorded(cassette.Replay(tape.calls))
    with Journal.create(directory) as journal:
        journal.begin(problem, settings)
        journal.describe(known)
        run = journal.load()
        async with open_library("lexical", lambda _: None) as library, Model(answers, journal) as model:
            proposer = _proposer(model, known, settings)
            seeded = isinstance(proposer, Seeded)
            await Search(run, journal, proposer, Bench(known), library, seeded=seeded).play()
    return answers.asked


def _proposer(model: Model, known: Description, settings: Settings) -> Proposer:
    own = ModelProposer(model)
    try:
        return Seeded(Templates(known), own) if settings.seeds else own
    except NotCovered:
        return own


async def measured(keep: Path | None) -> Lengths:
    """The characters of each prompt, by cassette and kind."""
    found: Lengths = {}
    for path in sorted(CASSETTES.glob("*.jsonl")):
        with tempfile.TemporaryDirectory() as folder:
            asked = await prompts(path, Path(folder) / "run")
        kinds: dict[str, list[int]] = defaultdict(list)
        for number, (role, text) in enumerate(asked):
            kinds[role].append(len(text))
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{path.stem}-{number:02}-{role}.md").write_text(text)
        found[path.stem] = dict(kinds)
    return found


def with_all(lengths: Lengths) -> Lengths:
    """The same, and under `all` the lengths of all cassettes together."""
    return lengths | {"all": {kind: [n for kinds in lengths.values() for n in kinds.get(kind, ())] for kind in KINDS}}


def rows(now: Lengths, before: Lengths | None) -> Iterator[list[str]]:
    """The rows of the table: medians of each cassette, then of all prompts together."""
    others = with_all(before or {})
    for name, kinds in with_all(now).items():
        earlier = others.get(name, {})
        yield [name, *(_cell(kinds.get(kind, []), earlier.get(kind, [])) for kind in KINDS)]


def _cell(now: Sequence[int], before: Sequence[int]) -> str:
    if not now:
        return ""
    if not before:
        return f"{median(now):,.0f}"
    return f"{median(now):,.0f} of {median(before):,.0f} ({median(now) / median(before):.0%})"


def beside(tree: Path, keep: Path | None) -> Lengths:
    """The same of another checkout, by this very file."""
    from benchmarks.serving import ended  # which an older checkout lacks, and does not need

    program = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    more = ["--keep", str(keep)] if keep else []
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = asyncio.run(ended([sys.executable, "-c", program, __file__, "--json", *more], tree, environment))
    said = done.output.decode(errors="replace").strip()
    if done.code:
        sys.exit(f"The prompts of {tree} cannot be measured: {said[-2000:]}")
    lengths: Lengths = json.loads(said.splitlines()[-1])
    return lengths


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.prompt_cost", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write every prompt there")
    parser.add_argument("--beside", type=Path, metavar="TREE", help="another checkout, to be compared with")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} as well")
    parser.add_argument("--json", action="store_true", help="print all lengths as JSON")
    args = parser.parse_args()
    now = asyncio.run(measured(args.keep))
    if args.json:
        print(json.dumps(now))
        return
    before = beside(args.beside.resolve(), args.keep and args.keep / "before") if args.beside else None
    lines = [
        "# What a prompt costs",
        "",
        f"{date.today()}.",
        "Characters of a call, its system part with it: the median over a recorded run's prompts, then over all.",
        "`python -m benchmarks.prompt_cost --write` makes this page; `--beside TREE` compares with another checkout.",
        "",
        table(["cassette", *KINDS], rows(now, before)),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
