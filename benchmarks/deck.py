"""A deck of kernelbench.com before the judge: each of its problems described, its reference judged, and our limit of
it beside the deck's own.

python -m benchmarks.deck FOLDER [--target T] [--limit-s N] [--out DIR]

The deck's `problem.yaml` has formulas for operations and bytes. Its limit is the longer of both at the rates that were
measured here, so that what differs from ours is what the two count. Shares are of eager PyTorch's time.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import operator
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.same_against_same import itself
from benchmarks.serving import arguments, keep, machine, need, table
from kernel_agent.suite.decks import ABOUT, REFERENCE, Variant, deck
from ncu_server.errors import Refusal
from ncu_server.judge.benchmark import CANDIDATE, time_candidate
from ncu_server.judge.candidate import Objection
from ncu_server.judge.checking import check
from ncu_server.judge.describe import describe
from ncu_server.judge.problems import Workshop
from ncu_server.judge.room import plan_again
from ncu_server.machine.tickets import unheard
from ncu_server.sandbox.child import ChildError
from ncu_server.wire.evaluation import DescribeResult, Peaks

OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
RATES = {
    "fp32": "fp32_tflops",
    "tf32": "tf32_tflops",
    "bf16": "bf16_tflops",
    "fp16": "bf16_tflops",
    "fp8": "fp8_tflops",
}
HEAD = (
    "problem",
    "status",
    "eager us",
    "our limit us",
    "by",
    "deck's limit us",
    "by",
    "ours over it",
    "share",
    "why",
)


@dataclass(frozen=True, slots=True)
class DeckLimit:
    """What a deck's formulas come to for one shape: operations, bytes, and the format whose rate they take."""

    flops: float
    moved: float
    kind: str

    def us(self, peaks: Peaks) -> tuple[float, str]:
        """Microseconds at these rates, and which of the two takes longer."""
        rate = getattr(peaks, RATES.get(self.kind, "bf16_tflops"))
        compute = self.flops / rate / 1e6 if rate else 0.0
        memory = self.moved / peaks.copy_gbps / 1e3
        return max((compute, f"{self.kind} products"), (memory, "bytes"))


def valued(formula: str, sizes: Mapping[str, float]) -> float:
    """The value of a formula of sums and products over named sizes. Raises ValueError for anything else."""

    def of(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in sizes:
                return sizes[name]
            case ast.BinOp(left, kind, right) if type(kind) in OPERATORS:
                return OPERATORS[type(kind)](of(left), of(right))
        raise ValueError(f"{formula!r} is no sum of products of {', '.join(sizes)}")

    return of(ast.parse(formula, mode="eval").body)


def deck_limit(about: Mapping[str, Any], code: str) -> DeckLimit | None:
    """The limit of one variant, whose shape stands in assignments at the end of its code; None where the deck has no
    formulas for it."""
    if not {"flops_formula", "bytes_formula"} <= about.keys():
        return None
    tree = ast.parse(code)
    sizes = {
        node.targets[0].id: float(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int | float)
    }
    sizes |= {name.lower(): value for name, value in sizes.items() if name.lower() not in sizes}
    flops, moved = (valued(about[key], sizes) for key in ("flops_formula", "bytes_formula"))
    return DeckLimit(flops, moved, str(about.get("peak_tflops_key", "bf16")))


@dataclass(slots=True)
class Found:
    """What came of one problem: the description, where there is one, and the time of the reference in a candidate's
    place, in microseconds."""

    status: str = "judged"
    why: str = ""
    known: DescribeResult | None = None
    us: float = 0.0

    def cells(self, name: str, theirs: DeckLimit | None) -> list[str]:
        """A row of the table."""
        if self.known is None:
            return [name, self.status, *[""] * (len(HEAD) - 3), self.why]
        known = self.known
        eager = self.us or known.baselines[0].timing.median_us
        ours = f"{known.limit_us:.1f}", known.limit_rate or ""
        limit, by, over = "", "", ""
        if theirs:
            us, by = theirs.us(known.device.peaks)
            limit, over = f"{us:.1f}", f"{known.limit_us / us:.2f}"
        share = f"{known.limit_us / eager:.0%}"
        return [name, self.status, f"{eager:,.1f}", *ours, limit, by, over, share, self.why]


async def played(workshop: Workshop, code: str, target: str, found: Found) -> None:
    """Describe a problem, then check and time its own code in a candidate's place."""
    device = workshop.machine.device(target)
    found.known = (await describe(workshop, code, target, ("eager",), unheard))[0]
    async with workshop.problems.prepared(code, device) as prepared, device.lease.alone():
        await plan_again(prepared, baselines=1)
        async with itself(prepared) as attempt:
            await check(attempt)
            found.us = (await time_candidate(attempt)).runs[0].samples.timing(CANDIDATE).median_us
        await prepared.clear()


async def one(workshop: Workshop, folder: Path, variant: Variant, args: argparse.Namespace) -> list[str]:
    """One problem's row, whatever comes of it."""
    found = Found()
    try:
        async with asyncio.timeout(args.limit_s):
            await played(workshop, variant.code, args.target, found)
    except TimeoutError:
        found.status, found.why = "time", f"not done within {args.limit_s:.0f} s"
    except Objection as objection:
        found.status, found.why = objection.status, objection.log
    except (Refusal, ChildError) as fault:
        found.status, found.why = "refused", str(fault)
    found.why = " ".join(found.why.split())[:200].replace("|", "/")
    about = yaml.safe_load((folder / ABOUT).read_text())
    name = f"{folder.name} {variant.suffix}".strip()
    return found.cells(name, deck_limit(about, variant.code))


async def main() -> None:
    """Judge, print each row, and keep the table where `--out` says."""
    parser = arguments(__doc__, "cuda", "cpu")
    parser.add_argument("deck", type=Path)
    parser.add_argument("--limit-s", type=float, default=120.0)
    args = parser.parse_args()
    need(args.target)
    folders = sorted(path.parent for path in args.deck.rglob(REFERENCE))
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as cache, contextlib.closing(Workshop(Path(cache))) as workshop:
        for folder in folders:
            for variant in deck(folder):
                rows.append(await one(workshop, folder, variant, args))
                print(" | ".join(rows[-1]), flush=True)
    title = (
        f"# A deck of kernelbench.com before the judge\n\n{machine(args.target)}; made by `python -m benchmarks.deck`"
    )
    keep(args.out, f"deck-{args.target}", title, table(HEAD, rows), {"rows": rows})


if __name__ == "__main__":
    asyncio.run(main())
