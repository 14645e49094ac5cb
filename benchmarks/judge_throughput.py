"""How many verdicts a minute the judge gives, and how long one takes.

python -m benchmarks.judge_throughput [--target T] [--light N] [--torch N] [--stock N] [--megabytes N] [--out DIR]

All candidates of a form are sent at once through the MCP server (the client of a search does so); a few are wrong and
their verdicts must say so. `--stock N` builds the first N of torch's form as they are, one at a time, each in a fresh
process, to compare with; 0 leaves that out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.candidates import FAMILIES, SLIP, TYPO, Family, Flaw, Form, candidate, problem
from benchmarks.serving import Judge, Verdict, arguments, ended, keep, machine, need, served, table

COLUMNS = 4096
SHARES = (1.0, 0.25, 0.125, 0.5)  # of the largest inputs, by family
STAGES = ("prepare_s", "build_s", "queue_s", "open_s", "check_s", "time_s", "attribute_s", "held_s")
BARS = {"per_minute": 30.0, "single_s": 12.0, "compile_error_s": 3.0, "versus_stock": 5.0}


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate and the status that it deserves."""

    source: str
    problem: str
    expected: str


class Bench:
    """The candidates of one run."""

    families = FAMILIES

    def __init__(self, target: str, megabytes: float) -> None:
        self.target = target
        self._rows = {
            f.name: max(1, int(share * megabytes * 2**20 / 8 / COLUMNS))
            for f, share in zip(FAMILIES, SHARES, strict=True)
        }

    def job(self, family: Family, form: Form, variant: int, flaw: Flaw | None = None) -> Job:
        source = candidate(family, self.target, form, variant, flaw)
        return Job(source, problem(family, self._rows[family.name], COLUMNS), flaw.status if flaw else "passed")

    def jobs(self, form: Form, count: int) -> list[Job]:
        """`count` different candidates; the sixth and every eighth after it is wrong."""
        places = ((v, f) for v in range(12) for f in FAMILIES)
        chosen = list(islice(places, count))
        return [self.job(f, form, v, SLIP if i % 8 == 5 else None) for i, (v, f) in enumerate(chosen)]


async def together(judge: Judge, jobs: list[Job]) -> dict[str, Any]:
    """All jobs at once: rate, latencies, where the time went."""
    began = time.monotonic()
    verdicts = await asyncio.gather(*(judge.judge(j.source, j.problem) for j in jobs))
    wall = time.monotonic() - began
    latencies = sorted(v.latency_s for v in verdicts)
    stages = {s: statistics.median(v.result["stages"][s] for v in verdicts) for s in STAGES}
    return {
        "count": len(jobs),
        "wall_s": wall,
        "per_minute": 60 * len(jobs) / wall,
        "p50_s": statistics.median(latencies),
        "p95_s": latencies[max(0, -(-95 * len(latencies) // 100) - 1)],
        "busy": sum(v.result["stages"]["held_s"] for v in verdicts) / wall,
        "stages": stages,
        "unexpected": unexpected(jobs, verdicts),
        "verdicts": [
            {"status": v.result["status"], "latency_s": v.latency_s} | v.result["stages"] for v in verdicts
        ],
    }  # fmt: skip


def unexpected(jobs: list[Job], verdicts: list[Verdict]) -> list[str]:
    return [
        f"candidate {i}: {v.result['status']} instead of {j.expected}: {v.result['log'][:1000]}"
        for i, (j, v) in enumerate(zip(jobs, verdicts, strict=True))
        if v.result["status"] != j.expected
    ]


async def singles(judge: Judge, bench: Bench) -> dict[str, Any]:
    """Latencies with nothing else under way: a server's first verdict, one on a new problem, a known one, an error."""
    jobs = {
        "first_s": bench.job(FAMILIES[2], "light", 11),
        "new_problem_s": bench.job(FAMILIES[0], "light", 11),
        "single_s": bench.job(FAMILIES[0], "light", 10),
        "compile_error_s": bench.job(FAMILIES[0], "light", 9, TYPO),
    }
    verdicts = {name: await judge.judge(j.source, j.problem) for name, j in jobs.items()}
    wrong = unexpected(list(jobs.values()), list(verdicts.values()))
    stages = {name: v.result["stages"] for name, v in verdicts.items()}
    return {name: v.latency_s for name, v in verdicts.items()} | {"stages": stages, "unexpected": wrong}


async def stock(jobs: list[Job]) -> list[float]:
    """Seconds that importing each candidate takes as it is, in a fresh process with an empty cache of extensions."""
    times = []
    for job in jobs:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "candidate.py"
            file.write_text(job.source)
            began = time.monotonic()
            env = os.environ | {"TORCH_EXTENSIONS_DIR": place, "TORCH_NO_COMPILER_WRAPPER": "1"}
            done = await ended([sys.executable, str(file)], Path(place), env)
            times.append(time.monotonic() - began)
            if done.code:
                sys.exit(f"a candidate cannot be built as it is: {done.output.decode(errors='replace')[-2000:]}")
    return times


def summary(found: dict[str, Any]) -> str:
    """One row a measure, with its bar."""
    single, light, torch, plain = found["single"], *(found.get(k) for k in ("light", "torch", "stock_s"))
    rows = [
        ["verdict on a known problem, s", f"{single['single_s']:.1f}", f"<= {BARS['single_s']:.0f}"],
        ["verdict on a new problem, s", f"{single['new_problem_s']:.1f}", f"<= {BARS['single_s']:.0f}"],
        ["a server's first verdict, s", f"{single['first_s']:.1f}", ""],
        ["compile error, s", f"{single['compile_error_s']:.1f}", f"<= {BARS['compile_error_s']:.0f}"],
    ]
    for form, got, bar in (("light", light, f">= {BARS['per_minute']:.0f}"), ("torch load_inline", torch, "")):
        if got:
            head = f"{form}, {got['count']} at once:"
            rows += [
                [f"{head} verdicts a minute", f"{got['per_minute']:.1f}", bar],
                [f"{head} latency p50 / p95, s", f"{got['p50_s']:.1f} / {got['p95_s']:.1f}", ""],
                [f"{head} device held", f"{got['busy']:.0%}", ""],
                [f"{head} medians, s", ", ".join(f"{k[:-2]} {v:.2f}" for k, v in got["stages"].items()), ""],
                [f"{head} verdicts that are not as they should be", str(len(got["unexpected"])), "0"],
            ]
    if torch and plain:
        ratio = statistics.mean(plain) * torch["count"] / torch["wall_s"]
        rows += [
            ["torch load_inline with stock headers, build alone, s", f"{statistics.mean(plain):.1f}", ""],
            [f"{torch['count']} whole verdicts at once against {torch['count']} stock builds in a row", f"{ratio:.1f}x",
             f">= {BARS['versus_stock']:.0f}x"],
        ]  # fmt: skip
    return table(["measure", "found", "bar"], rows)


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(given.target, given.megabytes)
    found: dict[str, Any] = {"target": given.target, "largest_inputs_mb": given.megabytes}
    async with served(given.target) as judge:
        found["single"] = await singles(judge, bench)
        print(f"singles: {found['single']}", flush=True)
        counts: dict[Form, int] = {"light": given.light, "torch": given.torch}
        for form, count in counts.items():
            if count:
                found[form] = await together(judge, bench.jobs(form, count))
                print(f"{form}: {found[form]['per_minute']:.1f} a minute, {found[form]['unexpected']}", flush=True)
    if given.stock:
        jobs = [j for j in bench.jobs("torch", 8) if j.expected == "passed"]
        found["stock_s"] = await stock(jobs[: given.stock])
    return found


def main() -> None:
    parser = arguments(__doc__, "cuda", "cpu")
    parser.add_argument("--light", type=int, default=32)
    parser.add_argument("--torch", type=int, default=8)
    parser.add_argument("--stock", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=256, help="the largest inputs; other families have less")
    given = parser.parse_args()
    need(given.target)
    found = asyncio.run(measure(given))
    made = "made by `python -m benchmarks.judge_throughput`"
    title = f"{machine(given.target)}; inputs of up to {given.megabytes:g} MB; {made}"
    keep(given.out, f"judge-throughput-{given.target}", title, summary(found), found)


if __name__ == "__main__":
    main()
