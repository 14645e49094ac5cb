"""Runs in real journals, written without a judge: as many trials as are wanted, with texts as long as a run's are.

python -m tests.support.page_runs DIRECTORY TRIALS    writes one
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from kernel_agent.run.budget import Charge
from kernel_agent.run.journal import Journal
from kernel_agent.run.module_checks import Delivery, ModuleCheck
from kernel_agent.run.tree import (
    Confirmation,
    Delivered,
    Diagnosis,
    EvaluationRecord,
    Ideas,
    Record,
    Unwritten,
    ranking,
)
from kernel_agent.run.types import (
    Comparison,
    Diagnostic,
    Evaluation,
    HotSpot,
    Idea,
    Interval,
    Problem,
    Profile,
    Status,
    Timing,
    Trial,
    Versus,
)
from tests.support.paths import ROOT
from tests.support.scripted_bench import COMPILE_US, EAGER_US
from tests.support.scripted_run import DESCRIPTION, MODEL, small_settings

KERNEL = (ROOT / "corpus" / "kernels" / "norm" / "level_02.cu").read_text()
PROSE = (ROOT / "corpus" / "docs" / "verify-tolerance.md").read_text().split()
MOVES = ("vectorise the loads", "keep the row in registers", "use a warp for a row", "split the row over a cluster")
FAILED = (Status.BUILD_ERROR, Status.WRONG, Status.RUN_ERROR, Status.TIMEOUT, Status.SUSPECT, Status.REJECTED)
IDEAS, ATTEMPTS, SWEPT = 20, 3, 4


def passed(speedup: float, error: float = 1.5, compiled: bool = False) -> Evaluation:
    """A verdict on a kernel so many times as fast as eager PyTorch."""
    us = EAGER_US / speedup
    baselines = [("eager", EAGER_US), *([("compile", COMPILE_US)] if compiled else [])]
    versus = tuple(
        Versus(
            name,
            Timing(base, base * 0.98, base * 1.02, 20),
            Interval(base / us * 0.96, base / us, base / us * 1.04),
            _compared(base / us),
        )
        for name, base in baselines
    )
    stages = {"prepare_s": 0.4, "build_s": 3.1, "queue_s": 2.0, "held_s": 1.7}
    facts = {"device": "scripted", "torch": "2.13", "label": "custom", "own_share": 1.0}
    timing = Timing(us, us * 0.97, us * 1.03, 20)
    return Evaluation(Status.PASSED, "", timing, versus, error, facts, stages, arithmetic="float32")


def _compared(ratio: float) -> Comparison:
    return "faster" if ratio * 0.96 > 1.06 else "slower" if ratio * 1.04 < 0.94 else "inconclusive"


def failed(status: Status, error: float | None = None) -> Evaluation:
    """A verdict on a kernel that did not pass, with a log of some forty lines."""
    log = f"scripted {status}\n" + "\n".join(
        f"  cuda.cu({row}): what a compiler says of line {row}" for row in range(40)
    )
    said = (Diagnostic("error", "no [such] type", "cuda.cu", 3),) if status is Status.BUILD_ERROR else ()
    return Evaluation(status, log, error=error, stages={"build_s": 2.0}, diagnostics=said)


Judged = tuple[Trial, Evaluation]


def growth(trials: int, chance: random.Random) -> Iterator[Ideas | Judged]:
    """Rounds of ideas, their implementations, and sweeps of what passed; parents are trials that passed."""
    reference = Trial(None, 0, 0, None, MODEL)
    parents, made, round = [reference.id], 0, 0
    while made < trials:
        round += 1
        rows = tuple(_idea(round, number, chance.choice(parents), chance) for number in range(IDEAS))
        yield Ideas(round, rows)
        new: list[Judged] = []
        for idea in rows:
            for attempt in range(ATTEMPTS):
                first = Trial(idea.id, attempt, 0, idea.parent, _source(idea, attempt, chance))
                new += _chain(first, round, chance)
        new = new[: trials - made]
        made += len(new)
        yield from new
        good = sorted((one for one in new if one[1].speedup), key=lambda one: -(one[1].speedup or 0.0))
        parents = [trial.id for trial, _ in good[:6]] or parents


def _idea(round: int, number: int, parent: str, chance: random.Random) -> Idea:
    words = " ".join(chance.choices(PROSE, k=60))
    title = f"{chance.choice(MOVES)} no. {round}.{number}"
    gain = 1 + chance.random()
    fields = {"bottleneck": words[:80], "transformation": words, "reasoning": words[::-1], "risk": words[40:90]}
    return Idea(f"{round}-{number}", round, parent, title, predicted=gain, predicted_gain=f"{gain:.1f}x", **fields)


def _source(idea: Idea, attempt: int, chance: random.Random) -> str:
    lines = KERNEL.splitlines()
    for row in chance.sample(range(len(lines)), 12):
        lines[row] = f"{lines[row]}  // {idea.title} {attempt} {chance.random()}"
    return "\n".join(lines) + "\n"


def _chain(first: Trial, round: int, chance: random.Random) -> Iterator[Judged]:
    """An implementation: its first writing, which may fail and be repaired, and what a sweep made of it."""
    found = verdict(round, chance)
    yield first, found
    if found.speedup is None:
        repaired = Trial(first.idea, first.attempt, 1, first.id, f"{first.source}// repaired\n")
        yield repaired, passed(_speed(round, chance))
    elif chance.random() < 0.5:
        for n in range(SWEPT):
            source = f"{first.source}// {n}\n"
            yield (
                Trial(first.idea, first.attempt, 10 + n, first.id, source, (("BLOCK", n),)),
                passed(_speed(round, chance)),
            )


def verdict(round: int, chance: random.Random) -> Evaluation:
    """Of a first writing: two of five fail."""
    if chance.random() < 0.4:
        status = chance.choice(FAILED)
        return failed(status, 10 ** chance.uniform(2, 8) if status is Status.WRONG else None)
    return passed(_speed(round, chance), 10 ** chance.uniform(-1, 1.6))


def _speed(round: int, chance: random.Random) -> float:
    return max(0.3, chance.gauss(0.8 + 0.3 * round, 0.35))


def records(trials: int, seed: int) -> Iterator[Record]:
    chance = random.Random(seed)
    for one in growth(trials, chance):
        match one:
            case Ideas():
                yield from (one, Unwritten(one.ideas[0].id, 9, 0, "the reply has no code block"))
            case (trial, evaluation):
                yield from (trial, EvaluationRecord(trial.source_id, evaluation))


def write(directory: Path, trials: int, seed: int = 1, finished: bool = True) -> Path:
    """A run of so many trials in a new directory; a finished one has a confirmed winner, profiled and delivered."""
    with Journal.create(directory) as journal:
        journal.begin(Problem("softmax", MODEL, "cuda"), small_settings(num_rounds=4, branching_factor=IDEAS))
        journal.describe(DESCRIPTION)
        run = journal.load()
        for record in records(trials, seed):
            journal.append(record, 60.0)
            run.record(record)
        journal.charge(Charge("ideas", "scripted-model", 12_000, 3_000, 0.25, 40.0))
        journal.charge(Charge("code", "scripted-model", 90_000, 60_000, 1.5, 400.0))
        if not finished:
            return directory
        best = ranking(run)[0]
        spots = (HotSpot(12, 41.0, "long_scoreboard 80 %"), HotSpot(20, 12.5))
        checks = tuple(ModuleCheck(name, True) for name in ("builds", "agrees", "state_dict", "to", "compile"))
        profile = Profile("counters", "memory", "DRAM is busy", ("spills",), ("spills registers",), hot_spots=spots)
        for record in (
            Diagnosis(best.source_id, profile),
            Confirmation(best.source_id, passed(run.speedup(best) or 1.0, compiled=True)),
            Delivered(best.source_id, Delivery("torch", checks)),
        ):
            journal.append(record, 61.0)
    (directory / "best_kernel.py").write_text(best.source)
    return directory


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
