"""What a run delivers, by itself and before another judge, in both bindings.

python -m benchmarks.delivery [--target T] [--kernelbench CHECKOUT] [--out DIR] [PROBLEM_OR_RUN...]

Each PROBLEM is optimized by the templates in one round, as `python -m kernel_agent run` does it, or a RUN's directory
gives its winner; then the kernel is bound by torch as well. Without either a kernel is delivered whose instructions
assemble for sm_90a alone. Every file is tried by itself and judged here and, with --kernelbench, by KernelBench's own
script.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.serving import ROOT, arguments, ended, keep, machine, need, table, turns
from benchmarks.versus_kernelbench import theirs
from kernel_agent.bench.client import BenchClient
from kernel_agent.delivery import BEST, delivered
from kernel_agent.run import tree
from kernel_agent.run.journal import read
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.types import Description, Evaluation, Problem

BINDINGS = ("tvm_ffi", "torch")
BAR = 0.05
"""How far the two bindings may be apart in one judge."""
SCALE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(8192, 16384)]


def get_init_inputs():
    return []
"""
WGMMA = (
    SCALE
    + '''

import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>

__global__ void __launch_bounds__(128) scale(const float4* __restrict__ x, float4* __restrict__ out) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // assembles for sm_90a alone
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const float4 v = x[i];
  out[i] = make_float4(fmaf(v.x, 2, 1), fmaf(v.y, 2, 1), fmaf(v.z, 2, 1), fmaf(v.w, 2, 1));
}

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView out) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
  scale<<<x.numel() / 512, 128, 0, stream>>>(
      static_cast<const float4*>(x.data_ptr()), static_cast<float4*>(out.data_ptr()));
  TVM_FFI_ICHECK_EQ(cudaGetLastError(), cudaSuccess) << "scale was not launched";
}
"""

kernel = tvm_ffi.cpp.load_inline("scale", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(Model):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
'''
)
Row = dict[str, Any]
Won = tuple[str, Problem, Description]


def gpus() -> list[str]:
    """The GPUs that may be used, as CUDA_VISIBLE_DEVICES names them."""
    if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return named.split(",")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return [str(number) for number, _ in enumerate(listed.splitlines())]


async def optimized(problem: Path, target: str, place: Path, gpu: str) -> Won | None:
    """The winner of one round of templates on a GPU, or None where there is none; its run lies below `place`."""
    if problem.is_dir():
        return won(problem)
    run, path = place / problem.stem, os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    command = [sys.executable, "-m", "kernel_agent", "run", str(problem.resolve()), "--target", target, "--rounds", "1"]
    command += ["--ideas", "2", "--sweep-evaluations", "0", "--provider", "templates", "--retrieval", "lexical"]
    command += ["--run-directory", str(run)]
    environment = os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": gpu}
    child = await ended(command, place, environment)
    (place / f"{problem.stem}.log").write_bytes(child.output)
    if child.code:
        print(child.output.decode(errors="replace")[-2000:])
        return None
    return won(run)


def won(run: Path) -> Won | None:
    """The kernel that a run delivered, its problem and the description; None where it delivered the original."""
    found = read(run)
    winner = tree.winner(found)
    return (winner.source, found.problem, found.description) if winner.idea else None


async def tried(
    bench: BenchClient, source: str, problem: Problem, description: Description, bind: str, place: Path
) -> Row:
    """What was tried of the file in a binding, and its time in each judge."""
    text = delivered(source, problem, description, bind)
    (place / f"{problem.name}-{bind}-{BEST}").write_text(text)
    checks = await bench.verify(problem, text)
    evaluation = await bench.confirm(problem, text, ["eager"])
    row: Row = {"problem": problem.name, "bind": bind, "checks": [_word(check) for check in checks]}
    row |= _ours(evaluation)
    print(row, flush=True)
    return row


def _word(check: ModuleCheck) -> str:
    said = {True: "yes", False: "NO", None: "untried"}[check.ok]
    return f"{check.name} {said}" + (f" ({check.why})" if check.why else "")


def _ours(evaluation: Evaluation) -> Row:
    time = evaluation.timing
    return {
        "status": str(evaluation.status),
        "log": evaluation.log[-600:],
        "us": time.median_us if time else None,
        "speedup": evaluation.speedup,
        "label": evaluation.provenance.get("label"),
    }


async def everything(given: argparse.Namespace) -> list[Row]:
    places = gpus() if given.target == "cuda" else ["0"]
    work = zip(given.problems, itertools.cycle(places), strict=False)
    found = await asyncio.gather(*(optimized(p, given.target, given.place, gpu) for p, gpu in work))
    chosen = [one for one in found if one]
    async with BenchClient("python -m ncu_server", given.place, 600.0, print) as bench:
        if not given.problems:
            problem = Problem("wgmma_fence", SCALE, "cuda")
            chosen.append((WGMMA, problem, await bench.describe(problem)))
        rows = await asyncio.gather(*(tried(bench, *one, bind, given.place) for one in chosen for bind in BINDINGS))
    if given.kernelbench:
        problems = {problem.name: problem for _, problem, _ in chosen}
        await asyncio.gather(*(scored(given, row, problems[row["problem"]].source, places[0]) for row in rows))
    return rows


async def scored(given: argparse.Namespace, row: Row, reference: str, gpu: str) -> None:
    """Put KernelBench's verdict into a row; files are compiled together and judged one by one."""
    text = (given.place / f"{row['problem']}-{row['bind']}-{BEST}").read_text()
    row["kernelbench"] = await theirs(given.kernelbench, reference, text, "cuda", gpu, turns("cuda"))
    print(row["problem"], row["bind"], row["kernelbench"], flush=True)


def text_of(rows: list[Row]) -> str:
    """The table, and how far the bindings are apart in each judge."""
    head = ["problem", "bind", "ours", "time us", "speed-up", "KernelBench ms", "tried by itself"]
    cells = [
        [
            row["problem"],
            row["bind"],
            f"{row['status']} {row['label']}",
            f"{row['us']:.1f}" if row["us"] else "",
            f"{row['speedup']:.2f}" if row["speedup"] else "",
            _theirs(row),
            ", ".join(row["checks"]),
        ]
        for row in rows
    ]
    lines = [f"- {line}" for line in _apart(rows)]
    return f"{table(head, cells)}\n\nThe bindings beside each other (bar: {BAR:.0%} in each judge):\n\n" + "\n".join(
        lines
    )


def _theirs(row: Row) -> str:
    if "kernelbench" not in row:
        return ""
    other = row["kernelbench"]
    return f"{other['runtime_ms']} of {other['reference_ms']}" if other["accepted"] else f"rejects: {other['why'][:80]}"


def _apart(rows: list[Row]) -> list[str]:
    lines = []
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        words = []
        if one["us"] and other["us"]:
            words.append(f"ours {other['us'] / one['us']:.3f}")
        both = [row.get("kernelbench", {}) for row in (one, other)]
        if all(b.get("accepted") for b in both):
            words.append(f"KernelBench's {both[1]['runtime_ms'] / both[0]['runtime_ms']:.3f}")
            words += [f"KernelBench's over ours {both[0]['runtime_ms'] * 1e3 / one['us']:.3f}"] if one["us"] else []
        lines.append(f"{one['problem']}: torch over tvm_ffi: {', '.join(words) or 'not both'}")
    return lines


def main() -> None:
    parser = arguments(__doc__, "cuda", "cpu")
    parser.add_argument("problems", nargs="*", type=Path, metavar="PROBLEM_OR_RUN")
    parser.add_argument("--kernelbench", type=lambda p: Path(p).resolve())
    given = parser.parse_args()
    need(given.target if given.problems else "cuda")
    with tempfile.TemporaryDirectory(prefix="delivery-") as place:
        given.place = Path(place)
        rows = asyncio.run(everything(given))
        given.out.mkdir(parents=True, exist_ok=True)
        title = f"{machine(given.target)}; made by `python -m benchmarks.delivery`"
        keep(given.out, f"delivery-{given.target}", title, text_of(rows), {"rows": rows})


if __name__ == "__main__":
    main()
