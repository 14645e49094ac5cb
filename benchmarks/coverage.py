"""How much of KernelBench the templates cover, without a device: each problem traced, its graph cut into regions.

python -m benchmarks.coverage CHECKOUT [--target cuda] [--levels 1 2 3] [--graphs DIR] [--every N --first K]

Problems are traced at their full sizes, on fake tensors where the model allows it. A problem is covered where a kernel
of ours decides what it returns. Float32 products are taken as on an H200 where three bfloat16 products, or three of
TF32, are exact enough; what the server says of a problem decides in earnest. The shares are those of the bytes that the
module's calls move one by one; products and convolutions count with the bytes of their operands and results alone.
`--graphs` keeps traced graphs for the next time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving import problems, table
from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.plan import Kernel, Plan
from kernel_agent.proposers.regions.works import Regional, Whole, work_of
from kernel_agent.proposers.templates.arithmetic import offers
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Device

PEAKS = {"fp32_tflops": 51.6, "tf32_tflops": 411.0, "bf16_tflops": 789.0}  # measured: results/selftest-cuda.md
WAYS = [Way(name, None, "inside", None) for name in ("three bfloat16 products", "three TF32 products")]
DEVICES = {
    "cuda": Device("cuda", "NVIDIA H200", "sm_90", 0, 4000.0, peaks=PEAKS),
    "cpu": Device("cpu", "a processor", "x86_64-avx2", 2, 20.0),
}
BARS = {1: 85, 2: 95, 3: 80}


@dataclass(frozen=True, slots=True)
class Row:
    """One problem: kernels, the share of its traffic that they take, and what stops the rest."""

    level: int
    problem: str
    traced: str
    kernels: int
    share: float
    stops: tuple[str, ...]

    @property
    def covered(self) -> bool:
        return self.kernels > 0

    def cells(self) -> list[str]:
        share = f"{self.share:.0%}" if self.covered else ""
        covered = "yes" if self.covered else "no"
        return [self.problem, self.traced or "yes", str(self.kernels), share, covered, ", ".join(self.stops)]


def row(level: int, path: Path, target: str, kept: Path | None) -> Row:
    """A problem's row, whatever comes of it."""
    name, found = f"{level}/{path.stem}", _graph(path, kept)
    if "error" in found:
        return Row(level, name, found["error"], 0, 0.0, ())
    try:
        work = work_of(found["graph"], DEVICES[target], offers(DEVICES[target], WAYS, True))
    except NotCovered as fault:
        calls = dict.fromkeys(names(node["op"])[0] for node in found["graph"]["nodes"])
        return Row(level, name, "", 0, 0.0, tuple(calls) if len(calls) < 9 else (str(fault)[:80],))
    if isinstance(work, Whole):
        return Row(level, name, "", 1, 1.0, ())
    assert isinstance(work, Regional)
    plan = work.plan({})
    return Row(level, name, "", len(plan.kernels), _share(plan), tuple(dict.fromkeys(_left(plan))))


def _share(plan: Plan) -> float:
    """The share of the traffic of single calls that goes through kernels of ours."""
    ours = sum(plan.eager_bytes(kernel.nodes) for kernel in plan.kernels)
    rest = sum(
        plan.eager_bytes((step.name,))
        for step in plan.steps
        if not isinstance(step, Kernel) and step.name in plan.reasons
    )
    return ours / max(ours + rest, 1)


def _left(plan: Plan) -> Iterator[str]:
    return (names(plan.node(name).op)[0] for name in plan.reasons)


def _graph(path: Path, kept: Path | None) -> dict[str, Any]:
    """The traced graph, or why there is none."""
    file = kept and kept / f"{path.parent.name}-{path.stem}.json"
    if file and file.exists():
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    found = traced(path)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return found


def traced(path: Path) -> dict[str, Any]:
    """The graph as the server traces it, in the mode that it judges in; {"error": sentence} where it does not trace."""
    from ncu_server.worker import private

    fault = ""
    for fake in (True, False):
        try:
            if not fake:
                return _traced(path)
            with private.take("torch._subclasses.fake_tensor.FakeTensorMode")(allow_non_fake_inputs=True):
                return _traced(path)
        except Exception as error:  # noqa: BLE001  a problem may raise anything
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    return {"error": fault}


def _traced(path: Path) -> dict[str, Any]:
    from ncu_server.worker.building.modules import has_dropout
    from ncu_server.worker.tracing.graph import graph

    module: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), module)
    model = module["Model"](*module["get_init_inputs"]())
    if has_dropout(model):
        model.eval()
    return dict(graph(model, (list(module["get_inputs"]()), {})))


def main() -> None:
    """Print a row a problem, then the table by level."""
    args = _parser().parse_args()
    rows = []
    for level in args.levels:
        for path in problems(args.checkout, level, args.first, args.every):
            rows.append(row(level, path, args.target, args.graphs))
            print(" | ".join(rows[-1].cells()), flush=True)
    head = ["level", "problems", "traced", "covered", "per cent", "bar", "median share", "stopped by"]
    print(f"\n{table(head, by_level(rows, args.levels))}")


def by_level(rows: list[Row], levels: list[int]) -> list[list[str]]:
    """A line a level: problems, traced, covered, the issue's bar, and the calls that most problems keep."""
    lines = []
    for level in levels:
        some = [r for r in rows if r.level == level]
        covered = [r for r in some if r.covered]
        shares = sorted(r.share for r in covered) or [0.0]
        stops = Counter(stop for r in some for stop in r.stops).most_common(8)
        counts = [len(some), sum(not r.traced for r in some), len(covered)]
        per_cent = 100 * len(covered) / max(len(some), 1)
        told = ", ".join(f"{op} {n}" for op, n in stops)
        share = f"{shares[len(shares) // 2]:.0%}"
        lines.append([str(level), *map(str, counts), f"{per_cent:.0f}", f"{BARS[level]}", share, told])
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--target", choices=list(DEVICES), default="cuda")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
