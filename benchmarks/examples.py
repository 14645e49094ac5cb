"""Optimize every example and write a table: speed-up against eager and torch.compile, share of the copy bandwidth.

python -m benchmarks.examples [--target T] [--rounds N] [--ideas N] [--out DIR] [FILE ...]
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from benchmarks.serving import ROOT, arguments, keep, machine, need, table
from kernel_agent import KernelAgent
from ncu_server.targets import TARGETS

TIMES = ("eager us", "compile us", "ours us", "vs eager", "vs torch.compile")
HEAD = ("example", *TIMES, "error", "GB/s", "share of copy", "idea")


def ratio(results: dict[str, Any], key: str) -> str:
    """A speed-up with its 95 % interval."""
    value, ends = results[key], results[f"{key}_interval"]
    return "not measured" if value is None else f"{value:.2f}x [{ends[0]:.2f}, {ends[1]:.2f}]"


def microseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def row(name: str, r: dict[str, Any]) -> list[str]:
    share = f"{r['gbps'] / r['copy_gbps']:.0%}" if r["copy_gbps"] else ""
    error = "" if r["error"] is None else f"{r['error']:.2f}"
    return [
        name, microseconds(r["reference_us"]), microseconds(r["compile_us"]), microseconds(r["time_us"]),
        ratio(r, "speedup"),
        ratio(r, "speedup_vs_compile"), error, f"{r['gbps']:.0f}", share, r["optimization_idea"] or "the original",
    ]  # fmt: skip


async def optimize(file: Path, given: argparse.Namespace) -> dict[str, Any]:
    agent = KernelAgent(
        target=given.target, num_rounds=given.rounds, branching_factor=given.ideas, provider="templates"
    )
    _, results = await agent.generate_kernel(file.read_text(), name=file.stem)
    return results


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--target", choices=list(TARGETS))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ideas", type=int, default=4)
    given = parser.parse_args()
    if given.target:
        need(given.target)
    found: dict[str, dict[str, Any]] = {}
    for file in given.files or sorted((ROOT / "examples").glob("*.py")):
        found[file.stem] = asyncio.run(optimize(file, given))
        print(" | ".join(row(file.stem, found[file.stem])), flush=True)
    first = next(iter(found.values()))
    title = (
        f"{machine(first['target'])}, copy bandwidth {first['copy_gbps']} GB/s (read + write); "
        f"{given.rounds} rounds of {given.ideas} ideas, templates; made by `python -m benchmarks.examples`"
    )
    text = table(HEAD, [row(name, result) for name, result in found.items()])
    keep(given.out, f"examples-{first['target']}", title, text, {n: r | {"kernel": None} for n, r in found.items()})


if __name__ == "__main__":
    main()
