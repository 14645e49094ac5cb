"""Our judge beside KernelBench's: verdicts a minute on the same candidates, and what either says of cheats.

python -m benchmarks.versus_kernelbench --kernelbench CHECKOUT [--form light|torch] [--count N] [--theirs N]
python -m benchmarks.versus_kernelbench --kernelbench CHECKOUT --cases DIR [--targets cuda,triton] [--abreast N]

KernelBench gets a process for each candidate, one at a time, as its scripts run it, for the first `--theirs` of the
candidates; ours gets all of them at once from one client. With `--cases` both judge the candidates that
DIR/manifest.jsonl lists (fields id, name, reference, candidate, target, expect); ours by the strict rules.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.judge_throughput import Bench, Job, unexpected
from benchmarks.serving import arguments, ended, keep, machine, need, served, table
from ncu_server.machine.tickets import Tickets

BAR = 4.0
TIMEOUT_S = 240
ONE = Path(__file__).with_name("kernelbench_one.py")


async def theirs(
    checkout: Path, reference: str, candidate: str, backend: str, gpu: str = "0", queue: Tickets | None = None
) -> dict[str, Any]:
    """KernelBench's verdict on one candidate on a GPU from a fresh process with an empty cache; `seconds` is all of it.

    With a `queue` the candidate is compiled by a process before, and judged when it has the device alone.
    """
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as place:
        folder = Path(place)
        files = [folder / name for name in ("reference.py", "candidate.py", "answer.json")]
        files[0].write_text(reference)
        files[1].write_text(candidate)
        caches = dict.fromkeys(("TORCH_EXTENSIONS_DIR", "TVM_FFI_CACHE_DIR", "TRITON_CACHE_DIR", "HOME"), place)
        caches["CUDA_VISIBLE_DEVICES"] = gpu
        command = [sys.executable, str(ONE), str(checkout), str(files[0]), str(files[1]), backend, str(files[2])]
        began = time.monotonic()
        try:
            async with contextlib.AsyncExitStack() as held:
                if queue:
                    await ended([*command, "--compile"], folder, os.environ | caches, TIMEOUT_S)
                    await held.enter_async_context(queue.hold(True))
                child = await ended(command, folder, os.environ | caches, TIMEOUT_S)
            said = child.output.decode(errors="replace").strip() or f"exit code {child.code}"
        except TimeoutError:
            said = f"no answer within {TIMEOUT_S} s"
        seconds = time.monotonic() - began
        if not files[2].exists():
            last = said.splitlines()[-1]
            return {"accepted": False, "why": f"no verdict: {last[:300]}", "seconds": seconds}
        verdict: dict[str, Any] = json.loads(files[2].read_text())
        return verdict | {"seconds": seconds}


async def rates(given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    bench = Bench("cuda", given.megabytes)
    jobs = bench.jobs(given.form, given.count)
    async with served("cuda") as judge:
        warm = bench.job(bench.families[0], "light", 11)
        await judge.judge(warm.source, warm.problem)
        began = time.monotonic()
        ours = await asyncio.gather(*(judge.judge(j.source, j.problem) for j in jobs))
        wall = time.monotonic() - began
    rows, answers = [], []
    for job, verdict in zip(jobs[: given.theirs], ours, strict=False):
        answers.append(await theirs(given.kernelbench, job.problem, job.source, "cuda"))
        rows.append(_row(job, verdict.result, answers[-1]))
        print(" | ".join(rows[-1]), flush=True)
    our_rate = 60 * len(jobs) / wall
    their_rate = 60 * len(answers) / sum(a["seconds"] for a in answers)
    head = ["candidate deserves", "ours", "KernelBench's", "its seconds", "why"]
    said = (
        f"{given.form} form: ours {our_rate:.1f} verdicts a minute ({len(jobs)} at once), KernelBench's "
        f"{their_rate:.1f} ({len(answers)} one at a time): {our_rate / their_rate:.1f}x (bar: {BAR:.0f}x); "
        f"ours not as they should be: {len(unexpected(jobs, list(ours)))}"
    )
    found = {"form": given.form, "ours": our_rate, "theirs": their_rate, "kernelbench": answers}
    return f"{table(head, rows)}\n\n{said}", found | {"unexpected": unexpected(jobs, list(ours))}


def _row(job: Job, ours: dict[str, Any], other: dict[str, Any]) -> list[str]:
    verdict = "accepts" if other["accepted"] else "rejects"
    return [job.expected, ours["status"], verdict, f"{other['seconds']:.1f}", _line(other["why"])]


def _line(text: str) -> str:
    return " ".join(str(text).split())[:80].replace("|", "/")


async def cases(given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Every listed candidate of the chosen targets through both judges; the table's last column says what is right."""
    listed = [json.loads(row) for row in (given.cases / "manifest.jsonl").read_text().splitlines() if row.strip()]
    chosen = [c for c in listed if c["target"] in given.targets.split(",")]
    texts = {(c["id"], k): (given.cases / c[k]).read_text() for c in chosen for k in ("reference", "candidate")}
    ours = {}
    for target in sorted({c["target"] for c in chosen}):
        async with served(target) as judge:
            for case in (c for c in chosen if c["target"] == target):
                both = texts[case["id"], "candidate"], texts[case["id"], "reference"]
                try:
                    ours[case["id"]] = (await judge.judge(*both, rules="strict", timeout_s=120)).result
                except RuntimeError as refused:
                    ours[case["id"]] = {"status": "not served", "log": str(refused)}
                print(f"ours: {case['id']} {ours[case['id']]['status']}", flush=True)
    room = asyncio.Semaphore(given.abreast)

    async def other(case: dict[str, Any]) -> dict[str, Any]:
        async with room:
            reference, candidate = texts[case["id"], "reference"], texts[case["id"], "candidate"]
            return await theirs(given.kernelbench, reference, candidate, case["target"])

    kernelbench = dict(zip(ours, await asyncio.gather(*(other(c) for c in _ordered(chosen, ours))), strict=True))
    rows = [_case_row(c, ours[c["id"]], kernelbench[c["id"]]) for c in chosen]
    text = f"{table(['case', 'what', 'expected', 'ours', 'KernelBench'], rows)}\n\n{_tally(chosen, ours, kernelbench)}"
    return text, {"ours": ours, "kernelbench": kernelbench}


def _ordered(chosen: list[dict[str, Any]], ours: dict[str, Any]) -> list[dict[str, Any]]:
    by_id = {c["id"]: c for c in chosen}
    return [by_id[i] for i in ours]


def _case_row(case: dict[str, Any], ours: dict[str, Any], other: dict[str, Any]) -> list[str]:
    credited = f" at {ours['versus'][0]['speedup']['median']:.2f}x" if ours["status"] == "passed" else ""
    log = credited or f": {_line(ours['log'])}"
    return [case["id"], case["name"], case["expect"], f"{ours['status']}{log}", _their_word(other)]


def _their_word(other: dict[str, Any]) -> str:
    if not other["accepted"]:
        return f"rejects: {_line(other['why'])}"
    return f"accepts, {other['reference_ms']} ms to {other['runtime_ms']} ms{', flagged' * other['flagged']}"


def _tally(chosen: list[dict[str, Any]], ours: dict[str, Any], other: dict[str, Any]) -> str:
    """What may be neutralised counts as accepted: its row says at which speed-up."""
    cheats = [c["id"] for c in chosen if c["expect"] == "reject"]
    honest = [c["id"] for c in chosen if c["expect"] == "accept"]
    let = sum(ours[i]["status"] == "passed" for i in cheats), sum(other[i]["accepted"] for i in cheats)
    away = sum(ours[i]["status"] != "passed" for i in honest), sum(not other[i]["accepted"] for i in honest)
    return (
        f"cheats accepted: ours {let[0]}, KernelBench {let[1]} of {len(cheats)}; "
        f"honest kernels turned away: ours {away[0]}, KernelBench {away[1]} of {len(honest)}"
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kernelbench", type=lambda p: Path(p).resolve(), required=True, help="a checkout of it")
    parser.add_argument("--form", choices=("light", "torch"), default="light")
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--theirs", type=int, default=6)
    parser.add_argument("--megabytes", type=float, default=256)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--targets", default="cuda,triton")
    parser.add_argument("--abreast", type=int, default=4, help="processes of KernelBench's at once, with --cases")
    given = parser.parse_args()
    need("cuda")
    text, found = asyncio.run((cases if given.cases else rates)(given))
    title = f"{machine('cuda')}; made by `python -m benchmarks.versus_kernelbench`"
    keep(given.out, f"versus-kernelbench-{'cases' if given.cases else given.form}", title, text, found)


if __name__ == "__main__":
    main()
