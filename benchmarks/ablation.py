"""Which shipped case fails without which mechanism of the judge: each is switched off in a copy, and the cheats judged.

python -m benchmarks.ablation [--target T] [--rules R] [--only MECHANISM ...] [--known FILE] [--jobs N] [--times N]
    [--out DIR] [CASE ...]

A mechanism is switched off in the source of the copy: a function answers at once, or a constant has another value. The
cases are those of the target that are cheats, or those that are named (shell patterns); without a mechanism only those
are judged of which the verdict is one that it can bring about. A case needs a mechanism where it fails in each of
`--times` runs without it and passes with all of them. `--known` reads what `selftest --json` said of the cases with all
mechanisms, so that they are not judged again. `--jobs` copies are judged at once, each with a queue of its own, so that
they disturb one another: name no more than a third of the machine's cores.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving import ROOT, arguments, ended, keep, machine, need, table
from ncu_server.selftest.cases import STATUSES, SelftestCase, cases
from ncu_server.selftest.run import chosen
from ncu_server.wire.evaluation import Rules

WHOLE = "(nothing)"


@dataclass(frozen=True, slots=True)
class Off:
    """In a file of ncu_server, what is switched off: `name` is a constant, a function or a method `Class.method`, and
    `by` its value, or what it answers at once."""

    file: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What has to be switched off for it to be gone, and the verdicts that it can bring about."""

    off: tuple[Off, ...]
    verdicts: frozenset[str]


AUTHOR, CHECK, TIME = frozenset({"rejected"}), frozenset({"wrong"}), frozenset({"suspect"})


def _one(verdicts: frozenset[str], file: str, name: str, by: str) -> Mechanism:
    return Mechanism((Off(file, name, by),), verdicts)


MECHANISMS: dict[str, Mechanism] = {
    WHOLE: Mechanism((), frozenset(STATUSES)),
    "static reading": _one(AUTHOR, "rules/lint.py", "REJECT", "()"),
    "names in the ELF": _one(AUTHOR, "rules/authorship.py", "vendors", "set()"),
    "whose kernel it is": _one(AUTHOR, "rules/authorship.py", "Ownership.owns", "not LIBRARY_KERNEL.search(kernel)"),
    "wrapped functions": _one(AUTHOR, "worker/authorship/instrument.py", "Watch.over", "None"),
    "profile before wrapping": Mechanism(
        (
            Off("worker/authorship/profile.py", "join", "seen"),
            Off("worker/authorship/profile.py", "find_concealed", "{}"),
        ),
        AUTHOR,
    ),
    "model made anew": _one(AUTHOR, "judge/evaluate.py", "_seen_anew", "None"),
    "silenced run": _one(AUTHOR, "judge/evaluate.py", "_silenced", "authorship.settle(doubtful, 1.0)"),
    "what a call leaves on": _one(AUTHOR | CHECK | TIME, "worker/authorship/tamper.py", "Intact.check", "None"),
    "no look at frames": _one(
        AUTHOR | CHECK | TIME, "worker/authorship/tamper.py", "IntrospectionGuard._heard", "None"
    ),
    "ctypes audit": _one(AUTHOR, "worker/authorship/ctypes_audit.py", "Opened.listen", "None"),
    "unseen draws": _one(TIME, "judge/benchmark.py", "_unremembered", "None"),
    "audits of blocks": _one(CHECK | TIME, "judge/benchmark.py", "audits", "frozenset()"),
    "timed calls compared": _one(CHECK | TIME, "judge/benchmark.py", "_held", "None"),
    "roofline floor": _one(TIME, "judge/benchmark.py", "_believe", "None"),
    "time that it computes": _one(TIME, "judge/interleave.py", "computes_untold", "False"),
    "alike values": _one(CHECK | TIME, "worker/timing/stage.py", "ALIKE, ALIKE_KEPT", "0, 0"),
    "twins": _one(CHECK, "judge/preparation.py", "TWINS", "0"),
    "further draws": _one(CHECK, "judge/preparation.py", "AGAIN, AGAIN_BYTES, AGAIN_S", "0, 0, 0.0"),
    "hard inputs": _one(CHECK, "judge/preparation.py", "_sharper", "None"),
    "far inputs": _one(CHECK, "judge/preparation.py", "_draw_far", "None"),
    "plain values": _one(CHECK, "judge/preparation.py", "_vary_plain_values", "None"),
    "where a constant would do": _one(CHECK, "judge/preparation.py", "_constant", "None"),
    "NaN among the inputs": _one(CHECK, "judge/checking.py", "_reads", "None"),
    "poisoned outputs": Mechanism(
        (
            Off("worker/timing/devices.py", "Cpu.poison", "None"),
            Off("worker/timing/devices.py", "Cuda.poison", "None"),
        ),
        CHECK,
    ),
    "outputs apart in memory": _one(CHECK, "worker/candidate.py", "Candidate._fresh", "True"),
}


def without(source: str, off: Off) -> str:
    """The source with one thing switched off. Raises LookupError where there is no such thing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()") == off.name:
            return _spliced(source, node.value, off.by)
    for function in _functions(ast.parse(source), off.name):
        first, last = function.body[0], function.body[-1]
        lines = source.splitlines()
        lines[first.lineno - 1 : last.end_lineno] = [f"{' ' * first.col_offset}return {off.by}"]
        return "\n".join(lines) + "\n"
    raise LookupError(f"{off.file} has no {off.name}")


def _functions(tree: ast.Module, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    owner, _, own = name.rpartition(".")
    scopes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner] if owner else [tree]
    return [
        n for s in scopes for n in s.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == own
    ]


def _spliced(source: str, node: ast.expr, text: str) -> str:
    lines = source.splitlines(keepends=True)
    begins = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    ends = sum(map(len, lines[: (node.end_lineno or node.lineno) - 1])) + (node.end_col_offset or 0)
    return source[:begins] + text + source[ends:]


async def failing(mechanism: str, target: str, wanted: Sequence[SelftestCase], rules: Rules) -> dict[str, str]:
    """The cases that do not come out as they should without a mechanism, and what is said of each. Raises RuntimeError
    where none is judged."""
    names = [one.name for one in wanted if one.expect[rules] & MECHANISMS[mechanism].verdicts]
    if not names:
        return {}
    with tempfile.TemporaryDirectory(prefix="ablation-") as place:
        copy = Path(place) / "copy"
        for part in ("ncu_server", "mcp_shell"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for off in MECHANISMS[mechanism].off:
            file = copy / "ncu_server" / off.file
            file.write_text(without(file.read_text(), off))
        around = os.environ | {"XDG_CACHE_HOME": f"{place}/cache", "NCU_SERVER_LEASES": f"{place}/leases"}
        around["PYTHONPATH"] = os.pathsep.join(p for p in (str(copy), os.environ.get("PYTHONPATH")) if p)
        command = [sys.executable, "-m", "ncu_server", "selftest", "--json"]
        command += ["--target", target, "--rules", rules, *names]
        said = (await ended(command, copy, around)).output.decode(errors="replace")
    if not (rows := _rows(said)):
        raise RuntimeError(f"without {mechanism}: {said.strip()[-500:]}")
    return {row["case"]: row["said"] for row in rows if not row["ok"]}


def _rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


async def judged(wanted: Sequence[SelftestCase], given: argparse.Namespace) -> dict[str, Counter[str]]:
    """How often each case fails without each mechanism; prints each run's as it comes."""
    found: dict[str, Counter[str]] = {mechanism: Counter() for mechanism in given.only or MECHANISMS}
    found.setdefault(WHOLE, Counter())
    room = asyncio.Semaphore(given.jobs)

    async def one(mechanism: str) -> None:
        async with room:
            failed = await failing(mechanism, given.target, wanted, given.rules)
        found[mechanism].update(failed.keys())
        said = ", ".join(f"{case} ({failed[case]})" for case in sorted(failed))
        print(f"{mechanism}: {said or 'none'}", flush=True)

    async with asyncio.TaskGroup() as runs:
        for mechanism in (m for m in found if m != WHOLE or not given.known):
            for _ in range(given.times):
                runs.create_task(one(mechanism))
    return found


def main() -> None:
    """Judge, print the table, and keep it where `--out` says."""
    given = _parser().parse_args()
    need(given.target)
    target = given.target
    wanted = [case for case in chosen(cases(), target, given.names) if given.names or not case.honest]
    found = asyncio.run(judged(wanted, given))
    if given.known:
        names = {case.name for case in wanted}
        rows = [row for row in _rows(given.known.read_text()) if row["case"] in names and not row["ok"]]
        found[WHOLE].update(row["case"] for row in rows)
    anyway = set(found[WHOLE])
    lines = [
        [mechanism, ", ".join(sorted(c for c, n in failed.items() if n == given.times and c not in anyway)) or "none"]
        for mechanism, failed in found.items()
        if mechanism != WHOLE
    ]
    title = f"# Which cheat passes without which mechanism\n\n{machine(target)}; {len(wanted)} cases"
    head = f"Failing with all mechanisms: {', '.join(sorted(anyway)) or 'none'}.\n\n"
    keep(
        given.out,
        f"ablation-{target}",
        title,
        head + table(["Mechanism", "Cases that fail without it"], lines),
        {"times": given.times, "failing": {mechanism: dict(failed) for mechanism, failed in found.items()}},
    )


def _parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__, "cpu", "cuda", "triton")
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--rules", default="default", choices=("default", "strict"))
    parser.add_argument("--known", type=Path, metavar="FILE")
    parser.add_argument("--only", nargs="+", metavar="MECHANISM", choices=sorted(MECHANISMS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--times", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
