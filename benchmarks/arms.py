"""Kernels that a language model wrote with and without parts of a brief, all judged in one sitting.

python -m benchmarks.arms CHECKOUT [--only 2/9 ...] [--arms full noprof ...] [--within SECONDS] [--out DIR]

CHECKOUT is KernelBench's. arms.jsonl beside this file holds the kernels, each with its problem, its arm, the draw (A or
B) and the round that it is of: `full` is a search of two rounds, `nopass` the same without passages of the library,
`noprof` its second round without profiles, `best` one round of as many ideas as a model had. What DIR/arms-cuda.jsonl
holds is not judged again, so that a sitting that was cut off goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.serving import arguments, keep, machine, need, problems, table
from kernel_agent.bench.client import BenchClient
from kernel_agent.errors import KernelAgentError
from kernel_agent.run.types import Problem

KERNELS = Path(__file__).with_suffix(".jsonl")
AT_ONCE = 6
HEAD = ("problem", "draw", "arm", "round", "us", "over eager", "error", "status", "idea")
Row = dict[str, Any]


def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which kernel a row is of."""
    return tuple(row[name] for name in ("problem", "arm", "draw", "round", "title"))


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def problem_of(checkout: Path, name: str) -> Problem:
    """KernelBench's problem of a level and number, such as 2/9."""
    level, _, number = name.partition("/")
    [path] = (path for path in problems(checkout, int(level)) if path.name.startswith(f"{number}_"))
    return Problem(path.stem, path.read_text(), "cuda")


async def judged(bench: BenchClient, problem: Problem, row: Row) -> Row:
    """The row with its verdict in place of its source."""
    found = {name: row[name] for name in row if name != "source"}
    try:
        verdict = await bench.evaluate(problem, f"{problem.source}\n\n{row['source']}")
    except KernelAgentError as fault:  # of ours: the next sitting tries again
        return found | {"status": "not judged", "log": str(fault)[:600]}
    return found | {
        "status": str(verdict.status),
        "us": verdict.timing.median_us if verdict.timing else None,
        "speedup": verdict.speedup,
        "error": verdict.error,
        "allowed": verdict.allowed,
        "held": verdict.held,
        "log": verdict.log[:600],
    }


async def sitting(given: argparse.Namespace, kernels: Iterable[Row], kept: Path) -> None:
    """Judge the kernels, problem by problem, until the time is over; each verdict is kept as it comes."""
    ends, turns = time.monotonic() + given.within, asyncio.Semaphore(AT_ONCE)
    known = {name: problem_of(given.checkout, name) for name in {row["problem"] for row in kernels}}

    async def one(bench: BenchClient, row: Row) -> None:
        async with turns:
            if time.monotonic() < ends:
                found = await judged(bench, known[row["problem"]], row)
                with kept.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(*place(found), found["status"], found.get("us"), found.get("speedup"), flush=True)

    async with BenchClient("python -m ncu_server", kept.parent, 300.0, print) as bench:
        await asyncio.gather(*(one(bench, row) for row in kernels))


def text_of(found: Sequence[Row]) -> str:
    """The verdicts, and beneath them the best of each arm by problem and draw."""
    cells = [
        [
            *(str(row[name]) for name in ("problem", "draw", "arm", "round")),
            f"{row['us']:.0f}" if row.get("us") else "",
            f"{row['speedup']:.2f}" if row.get("speedup") else "",
            f"{row['error']:.3g} of {row['allowed']:.4g}" if row.get("error") is not None else "",
            row["status"],
            row["title"],
        ]
        for row in sorted(found, key=place)
    ]
    passed = sum(row["status"] == "passed" for row in found)
    lines = [f"Right at the first try: {passed} of {len(found)}."]
    arms = sorted({row["arm"] for row in found})
    best = [[*where, *(_best(found, where, arm) for arm in arms)] for where in sorted({_where(row) for row in found})]
    return "\n\n".join([table(HEAD, cells), *lines, table(("problem", "draw", *arms), best), *_ratios(found)])


def _where(row: Row) -> tuple[str, str]:
    return row["problem"], row["draw"]


def _times(found: Iterable[Row], where: tuple[str, str], arm: str, round: int | None = None) -> list[float]:
    chosen = (row for row in found if _where(row) == where and row["arm"] == arm and row.get("us"))
    return [row["us"] for row in chosen if round in (None, row["round"])]


def _best(found: Sequence[Row], where: tuple[str, str], arm: str) -> str:
    """The least microseconds of an arm, by round."""
    rounds = sorted({row["round"] for row in found if row["arm"] == arm})
    least = (min(_times(found, where, arm, one), default=None) for one in rounds)
    return ", ".join(f"{us:.0f}" if us else "-" for us in least)


def _ratios(found: Sequence[Row]) -> list[str]:
    """Of each ablated arm and round, how many times as long its best takes as the full brief's: the geometric mean."""
    said = list[str]()
    for arm, rounds in (("nopass", (1, 2)), ("noprof", (2,))):
        for one in rounds:
            both = ((_times(found, w, arm, one), _times(found, w, "full", one)) for w in {_where(r) for r in found})
            ratios = [min(without) / min(whole) for without, whole in both if without and whole]
            if ratios:
                said.append(f"{arm} over full, round {one}: {geometric_mean(ratios):.2f} of {len(ratios)} pairs")
    return said


def parsed() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", nargs="+", metavar="LEVEL/ID")
    parser.add_argument("--arms", nargs="+", metavar="ARM")
    parser.add_argument("--within", type=float, default=1e9, metavar="SECONDS")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    need("cuda")
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "arms-cuda.jsonl"
    done = {place(row) for row in rows_of(kept) if row["status"] != "not judged"}
    wanted = [row for row in rows_of(KERNELS) if place(row) not in done]
    wanted = [row for row in wanted if row["problem"] in (given.only or row["problem"])]
    wanted = [row for row in wanted if row["arm"] in (given.arms or row["arm"])]
    asyncio.run(sitting(given, wanted, kept))
    found = {place(row): row for row in rows_of(kept)}
    title = f"{machine('cuda')}; made by `python -m benchmarks.arms`"
    keep(given.out, "arms-cuda", title, text_of(list(found.values())), {"rows": list(found.values())})


if __name__ == "__main__":
    main()
