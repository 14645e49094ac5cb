"""Optimize every example and write a table: speed-up against eager and torch.compile, share of the copy bandwidth.

python -m benchmarks.examples [--target T] [--rounds N] [--ideas N] [--out DIR] [FILE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernel_agent import KernelAgent

ROOT = Path(__file__).parent.parent
HEAD = (
    "| example | eager us | compile us | ours us | vs eager | vs torch.compile | error | GB/s | share of copy | idea |"
)


def ratio(results: dict[str, Any], key: str) -> str:
    """A speed-up with its 95 % interval."""
    value, ends = results[key], results[f"{key}_interval"]
    return "not measured" if value is None else f"{value:.2f}x [{ends[0]:.2f}, {ends[1]:.2f}]"


def microseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def row(name: str, r: dict[str, Any]) -> str:
    share = f"{r['gbps'] / r['copy_gbps']:.0%}" if r["copy_gbps"] else ""
    error = "" if r["error"] is None else f"{r['error']:.2f}"
    cells = [
        name, microseconds(r["reference_us"]), microseconds(r["compile_us"]), microseconds(r["time_us"]),
        ratio(r, "speedup"),
        ratio(r, "speedup_vs_compile"), error, f"{r['gbps']:.0f}", share, r["optimization_idea"] or "the original",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


async def optimize(file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    agent = KernelAgent(
        target=arguments.target, num_rounds=arguments.rounds, branching_factor=arguments.ideas, provider="templates"
    )
    _, results = await agent.generate_kernel(file.read_text(), name=file.stem)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ideas", type=int, default=4)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for file in arguments.files or sorted((ROOT / "examples").glob("*.py")):
        found[file.stem] = asyncio.run(optimize(file, arguments))
        print(row(file.stem, found[file.stem]), flush=True)
    first = next(iter(found.values()))
    title = (
        f"{first['device']}, target {first['target']}, copy bandwidth {first['copy_gbps']} GB/s (read + write), torch "
        f"{version('torch')}, Python {platform.python_version()}, {date.today()}; {arguments.rounds} rounds of "
        f"{arguments.ideas} ideas, templates; made by `python -m benchmarks.examples`"
    )
    table = "\n".join([HEAD, "|" + "---|" * HEAD.count(" | ") + "---|", *(row(n, r) for n, r in found.items())])
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = f"examples-{first['target']}"
    (arguments.out / f"{stem}.md").write_text(f"{title}\n\n{table}\n")
    (arguments.out / f"{stem}.json").write_text(
        json.dumps({name: result | {"kernel": None} for name, result in found.items()}, indent=1) + "\n"
    )
    print(f"\n{title}\n\n{table}")


if __name__ == "__main__":
    main()
