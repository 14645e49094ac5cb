"""Float32 products by wgmma beside cuBLAS: time, error, and how much of the tensor cores' rate is reached.

python -m benchmarks.products [--shapes MxNxK ...] [--out DIR]

The kernel is corpus/kernels/gemm/level_03.cu in each arithmetic and tile, the cutting of both operands included, before
any judge. Times are medians of 15 calls between events. Errors are the largest in 256 rows, over the output's root mean
square, of normal and of uniform operands, and beside cuBLAS's own in float32.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
import tvm_ffi.cpp

from benchmarks.serving import arguments, keep, machine, need, table
from kernel_agent.proposers.templates.emit_product import TILES, cut_parts, cut_shape, instruction
from kernel_agent.proposers.templates.express import fill, text

SHAPES = ("4096x4096x4096", "16384x4096x4096", "1024x8192x8192", "8192x8192x8192")
KINDS = (
    ("bf16x3", "wgmma"),
    ("tf32x3", "wgmma"),
    ("int8x3", "wgmma"),
    ("fp16", "wgmma"),
    *((name, "wgmma-256") for name in ("fp16", "bf16", "tf32")),
)
CALLS = 15
HEAD = ("m, n, k", "operands", "arithmetic", "columns", "ms", "TFLOP/s", "over cuBLAS", "error", "over cuBLAS's")


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel: rows, columns and terms of the product, its arithmetic and tile."""

    sizes: tuple[int, int, int]
    arithmetic: str
    tile: str

    @property
    def genes(self) -> Mapping[str, object]:
        return {"arithmetic": self.arithmetic, "tile": self.tile, "stages": 9}

    def source(self) -> str:
        m, n, k = self.sizes
        shape = [
            f"constexpr int64_t BATCH = 1, M = {m}, N = {n}, K = {k};",
            f"constexpr int64_t A_M = {k}, A_K = 1, B_K = {n}, B_N = 1;",
            "constexpr int SPLITS = 1, GROUP = 8;",
            "constexpr bool BANDED = false;",
            "constexpr int64_t LOWEST = 0, HIGHEST = 0;",
            *cut_shape((1, 1), self.genes),
        ]
        places = {"shape": "\n".join(shape), "instruction": instruction(TILES[self.tile][1])}
        return re.sub(r"//@(begin|end) \w+\n", "", fill(text("gemm/level_03.cu"), places))

    def built(self) -> Any:
        name = f"product_{self.arithmetic}_{self.tile.replace('-', '_')}_{'x'.join(map(str, self.sizes))}"
        given = {"cuda_sources": self.source(), "functions": ["run"], "extra_cuda_cflags": ["-O3"]}
        return tvm_ffi.cpp.load_inline(name, **given)

    def scratch(self) -> torch.Tensor:
        (m, n, k), (count, size) = self.sizes, cut_parts(self.genes)
        return torch.empty((m + n) * (-(-k // 16) * 16 * count * size // 4 + 1), device="cuda")  # and a row's largest


def sizes_of(text: str) -> tuple[int, int, int]:
    """The rows, columns and terms of a shape such as 4096x4096x512. Raises ValueError."""
    m, n, k = map(int, text.split("x"))
    return m, n, k


def ms(call: Callable[[], object]) -> float:
    """The median of what a call takes, between events."""
    for _ in range(3):
        call()
    taken: list[float] = []
    for _ in range(CALLS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        call()
        ended.record()
        torch.cuda.synchronize()
        taken.append(began.elapsed_time(ended))
    return median(taken)


def rows(jobs: Sequence[tuple[Job, Any]], sizes: tuple[int, int, int], draw: str) -> list[list[str]]:
    """The table's rows of one shape, with operands of one distribution."""
    m, n, k = sizes
    x, w = (getattr(torch, draw)(*shape, device="cuda") for shape in ((m, k), (k, n)))
    bias, out = torch.zeros(n, device="cuda"), torch.empty(m, n, device="cuda")
    some = torch.arange(0, m, max(1, m // 256), device="cuda")
    exact = (x[some].double() @ w.double()).relu()
    rms = exact.square().mean().sqrt()

    def error() -> float:
        return float((out[some].double().relu() - exact).abs().max() / rms)

    library = ms(lambda: torch.mm(x, w, out=out))
    base, found = error(), list[list[str]]()
    where = f"{m}, {n}, {k}", {"randn": "normal", "rand": "uniform"}[draw]

    def told(name: str, columns: str, taken: float) -> None:
        speed = f"{2e-9 * m * n * k / taken:.0f}", f"{library / taken:.2f}x"
        found.append([*where, name, columns, f"{taken:.3f}", *speed, f"{error():.1e}", f"{error() / base:.1f}"])
        print(" | ".join(found[-1]), flush=True)

    told("cuBLAS, float32", "", library)
    for job, module in jobs:
        if job.sizes == sizes:
            out.fill_(float("nan"))
            taken = ms(partial(module.run, x, w, bias, out, job.scratch()))
            told(job.arithmetic, str(TILES[job.tile][1]), taken)
    return found


def main() -> None:
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0a")  # wgmma assembles for no other
    parser = arguments(__doc__, "cuda")
    parser.add_argument("--shapes", nargs="+", type=sizes_of, default=[sizes_of(shape) for shape in SHAPES])
    args = parser.parse_args()
    need("cuda")
    jobs = [Job(sizes, *kind) for sizes in args.shapes for kind in KINDS]
    with ThreadPoolExecutor(8) as pool:
        built = list(zip(jobs, pool.map(Job.built, jobs), strict=True))
    found = [row for sizes in args.shapes for draw in ("randn", "rand") for row in rows(built, sizes, draw)]
    title = "# Float32 products by wgmma beside cuBLAS"
    made = f"{machine('cuda')}; made by `python -m benchmarks.products`"
    keep(args.out, "products-cuda", f"{title}\n\n{made}", table(HEAD, found), {"rows": found})


if __name__ == "__main__":
    main()
