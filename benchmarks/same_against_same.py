"""Whether the judge's numbers mean something: equal things must come out equal.

python -m benchmarks.same_against_same [--target T] [--part ARG] [--runs N] [--shrink N] [--out DIR]

`reference`: problems of 10 us to 5 ms against themselves, 4 times each, the reference's code standing for the candidate
in a candidate's process, through the judge's own timing; only authorship is not asked (it is the library's). Nearly all
must be `inconclusive`. `fresh`: kernels judged 10 times through the MCP server, each time with new inputs in new
processes: their speed-ups must agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.candidates import FAMILIES, candidate, problem
from benchmarks.serving import arguments, keep, machine, need, served, table
from ncu_server.compiler.builds import Build
from ncu_server.judge.benchmark import CANDIDATE, time_candidate
from ncu_server.judge.candidate import Attempt, EvaluateRequest, open_candidate
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.problems import Workshop
from ncu_server.wire import evaluation

SPREAD, SHORT_US = 0.03, 50.0
# expression, rows and columns of x, columns of y (its rows are x's columns where the two are multiplied)
PROBLEMS = (
    ("torch.relu(x)", 1024, 2048),
    ("x + y", 2048, 2048),
    ("torch.softmax(x, -1)", 4096, 2048),
    ("torch.nn.functional.layer_norm(x, x.shape[1:])", 4096, 4096),
    ("(x * y).sum(-1)", 4096, 4096),
    ("x / (x * x).mean(-1, keepdim=True).add(1e-5).sqrt() * y", 4096, 4096),
    ("torch.nn.functional.gelu(x) * y + torch.sigmoid(y)", 4096, 8192),
    ("x @ y", 2048, 2048),
    ("x @ y", 4096, 4096),
    ("x @ y", 4096, 8192),
)
KERNELS = (("scale_add", 512), ("scale_add", 8192), ("row_norm", 8192))


def source(expression: str, rows: int, cols: int) -> str:
    shape = f"{cols}, {rows}" if "@" in expression else f"{rows}, {cols}"
    return f"""import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return {expression}


def get_inputs():
    return [torch.randn({rows}, {cols}), torch.randn({shape})]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True, slots=True)
class Trials:
    """One problem against itself, several times."""

    name: str
    versus: list[evaluation.Versus]

    @property
    def decided(self) -> int:
        return sum(v.verdict != "inconclusive" for v in self.versus)

    def row(self) -> list[str]:
        ends = [v.speedup for v in self.versus]
        medians = ", ".join(f"{e.median:.4f}" for e in ends)
        widest = max(e.high - e.low for e in ends)
        decided = f"{self.decided} of {len(ends)}"
        return [self.name, f"{self.versus[0].timing.median_us:.1f}", medians, f"{widest:.2%}", decided]


@contextlib.asynccontextmanager
async def itself(prepared: PreparedProblem) -> AsyncIterator[Attempt]:
    """The reference's own code in a candidate's place."""
    text, device = prepared.problem, prepared.device
    request = EvaluateRequest(f"{text}\n\nModelNew = Model\n", text, device.target.name, ("eager",), False, 120.0)
    with (
        tempfile.TemporaryDirectory(dir=device.work) as nothing_built,
        contextlib.closing(await prepared.candidate(nothing_built)) as child,
    ):
        attempt = Attempt(prepared, child, request, Build([], nothing_built, 0.0), evaluation.Stages())
        await open_candidate(attempt)
        yield attempt


async def against_itself(workshop: Workshop, target_name: str, text: str) -> evaluation.Versus:
    device = workshop.machine.device(target_name)
    async with workshop.problems.prepared(text, device) as prepared, device.lease.alone(), itself(prepared) as attempt:
        raced = await time_candidate(attempt)
    return raced.runs[0].samples.versus("eager", CANDIDATE)


async def references(target: str, runs: int, shrink: int) -> list[Trials]:
    found = []
    with tempfile.TemporaryDirectory(prefix="same-") as cache, contextlib.closing(Workshop(Path(cache))) as workshop:
        for expression, rows, cols in PROBLEMS:
            text = source(expression, max(1, rows // shrink), max(1, cols // shrink))
            versus = [await against_itself(workshop, target, text) for _ in range(runs)]
            found.append(Trials(f"`{expression}`, {rows // shrink} x {cols // shrink}", versus))
            print(" | ".join(found[-1].row()), flush=True)
    return found


@dataclass(frozen=True, slots=True)
class Repeats:
    """One kernel judged in fresh processes, several times; `statuses` of those that did not pass."""

    name: str
    results: list[evaluation.EvaluateResult]
    statuses: list[str]

    @property
    def time_us(self) -> float:
        return min(r.timing.median_us for r in self.results if r.timing)

    @property
    def spread(self) -> float:
        medians = [r.versus[0].speedup.median for r in self.results]
        return max(medians) / min(medians) - 1

    @property
    def overlap(self) -> bool:
        ends = [r.versus[0].speedup for r in self.results]
        return max(e.low for e in ends) <= min(e.high for e in ends)

    @property
    def holds(self) -> bool:
        return not self.statuses and (self.overlap if self.time_us < SHORT_US else self.spread <= SPREAD)

    def row(self) -> list[str]:
        medians = sorted(r.versus[0].speedup.median for r in self.results)
        ends = f"{medians[0]:.4f} to {medians[-1]:.4f}"
        overlap = "all overlap" if self.overlap else "do not all overlap"
        failed = f"; not passed: {', '.join(self.statuses)}" if self.statuses else ""
        return [
            self.name, f"{self.time_us:.1f}", str(len(medians)), ends, f"{self.spread:.2%}", overlap,
            ("yes" if self.holds else "no") + failed,
        ]  # fmt: skip


async def fresh(target: str, runs: int, shrink: int) -> list[Repeats]:
    found = []
    async with served(target) as judge:
        for name, rows in KERNELS:
            family = next(f for f in FAMILIES if f.name == name)
            text = problem(family, rows // shrink, 4096 // shrink)
            kernel = candidate(family, target, "light", 1)
            answers = [(await judge.judge(kernel, text, fresh=True)).result for _ in range(runs)]
            results = [evaluation.EvaluateResult.model_validate(a) for a in answers]
            bad = [f"{r.status} {r.log[:200]}" for r in results if r.status != "passed"]
            passed = [r for r in results if r.status == "passed"]
            if not passed:
                raise RuntimeError(f"{name} never passed: {bad[0]}")
            found.append(Repeats(f"{name}, {rows // shrink} x {4096 // shrink}", passed, bad))
            print(" | ".join(found[-1].row()), flush=True)
    return found


def of_references(trials: list[Trials]) -> tuple[str, dict[str, Any]]:
    total, decided = sum(len(t.versus) for t in trials), sum(t.decided for t in trials)
    said = f"inconclusive: {total - decided} of {total} (bar: at least {total - total // 40})"
    head = ["problem", "us", "speed-ups of the reference over itself", "widest interval", "decided"]
    kept = {"inconclusive": total - decided, "of": total}
    rows = {t.name: [v.model_dump() for v in t.versus] for t in trials}
    return f"{table(head, [t.row() for t in trials])}\n\n{said}", kept | {"problems": rows}


def of_repeats(repeats: list[Repeats]) -> tuple[str, dict[str, Any]]:
    head = ["kernel", "us", "judged", "speed-ups", "largest over smallest", "intervals", "holds"]
    said = f"bar: within {SPREAD:.0%} from {SHORT_US:.0f} us, overlapping intervals below"
    rows = {r.name: [x.model_dump() for x in r.results] for r in repeats}
    return f"{table(head, [r.row() for r in repeats])}\n\n{said}", {"kernels": rows}


def main() -> None:
    parser = arguments(__doc__, "cuda", "cpu")
    parser.add_argument("--part", choices=("reference", "fresh"), default="reference")
    parser.add_argument("--runs", type=int, help="of each problem (4) or kernel (10)")
    parser.add_argument("--shrink", type=int, default=1, help="divides rows and columns, for a trial")
    given = parser.parse_args()
    need(given.target)
    if given.part == "reference":
        text, found = of_references(asyncio.run(references(given.target, given.runs or 4, given.shrink)))
    else:
        text, found = of_repeats(asyncio.run(fresh(given.target, given.runs or 10, given.shrink)))
    title = f"{machine(given.target)}; made by `python -m benchmarks.same_against_same --part {given.part}`"
    keep(given.out, f"same-{given.part}-{given.target}", title, text, found)


if __name__ == "__main__":
    main()
