"""Pooling: maximum and average over windows in one to three dimensions, by pooling/level_01 of the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.centred import Centred, after, operand, piece
from kernel_agent.proposers.templates.family import Family, Kit
from kernel_agent.proposers.templates.genes import Genes, Space, numbers, starting
from kernel_agent.proposers.templates.graph import Graph, Node, Shape
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.spaces import UNROLL, WIDTH
from kernel_agent.proposers.templates.spelled import macros, source
from kernel_agent.run.types import Device

Three = tuple[int, int, int]
HELD = 48  # numbers of a line that a thread keeps in registers at most
SHARED = 48 << 10  # bytes of shared memory that every block may have
SIGNATURES = {
    "max_pool": ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "avg_pool": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "adaptive_avg_pool": ("output_size",),
    "adaptive_max_pool": ("output_size",),
}
VALUES = tuple(f"adaptive_max_pool{d}d_values" for d in (1, 2, 3))  # where nobody asks for places


@dataclass(frozen=True)
class Windows:
    """Where windows lie: planes of up to three dimensions, what is missing before them of size one.

    `adaptive` windows of output o reach from floor(o * given / wanted) to ceil((o + 1) * given / wanted), as
    torch.nn.functional.adaptive_avg_pool2d says; `window` is then the largest of them.
    """

    maximum: bool
    planes: int
    given: Three
    wanted: Three
    window: Three
    stride: Three
    pad: Three
    step: Three
    padding_counts: bool = True
    adaptive: bool = False
    divisor: int = 0

    def first(self, d: int, o: int) -> int:
        """The first place of an output's window."""
        if self.adaptive:
            return o * self.given[d] // self.wanted[d]
        return o * self.stride[d] - self.pad[d]

    def past(self, d: int, o: int) -> int:
        """The place behind an output's window."""
        if self.adaptive:
            return -(-(o + 1) * self.given[d] // self.wanted[d])
        return self.first(d, o) + (self.window[d] - 1) * self.step[d] + 1

    def line(self, outputs: int) -> int:
        """The places under a tile of so many outputs of a row."""
        last = self.wanted[2] - 1
        starts = range(0, last + 1, outputs) if self.adaptive else (0,)
        return max(self.past(2, min(o + outputs - 1, last)) - self.first(2, o) for o in starts)


def _build(graph: Graph, core: Node) -> Centred:
    geometry = _windows(graph, core)
    value = operand(graph, core.args[0], core.op)
    before = piece([value], prod(value.shape) // geometry.given[2], geometry.given[2])
    behind, outputs = after(graph, core, prod(core.spec.shape) // geometry.wanted[2], geometry.wanted[2])
    if core.spec.dtype not in ("float32", "float16", "bfloat16"):
        raise NotCovered(f"no template covers {core.op} of {core.spec.dtype}.")
    pieces = (("in", before), ("out", behind))
    return Centred("pooling", graph, core, geometry, pieces, outputs, (prod(core.spec.shape), 1))


def _windows(graph: Graph, core: Node) -> Windows:
    dims = int(names(core.op)[0].removesuffix("_values")[-2])
    shape, wanted = operand(graph, core.args[0], core.op).shape, core.spec.shape
    return windows(core, prod(shape[:-dims]), shape[-dims:], wanted[-dims:])


def windows(core: Node, planes: int, shape: Shape, wanted: Shape) -> Windows:
    """The windows of a pooling over so many planes or spaces of one shape. Raises NotCovered where it gives places."""
    dims, kind = len(shape), names(core.op)[0].removesuffix("_values").removesuffix("_last")[:-2]
    given = dict(zip(SIGNATURES[kind], core.args[1:], strict=False)) | dict(core.kwargs)
    if len(core.outputs) > 1:
        raise NotCovered(f"no template gives the places that {core.op} finds.")
    inside, out = three(shape, 1), three(wanted, 1)
    if kind.startswith("adaptive"):
        return _adaptive("max" in kind, planes, inside, out)
    window = three(given["kernel_size"], 1, dims)
    stride = three(given["stride"], 1, dims) if given.get("stride") else window
    pad, step = three(given.get("padding", 0), 0, dims), three(given.get("dilation", 1), 1, dims)
    counts, divisor = bool(given.get("count_include_pad", True)), given.get("divisor_override") or 0
    return Windows("max" in kind, planes, inside, out, window, stride, pad, step, counts, False, divisor)


def _adaptive(maximum: bool, planes: int, given: Three, wanted: Three) -> Windows:
    ones, none = (1, 1, 1), (0, 0, 0)
    if all(n % m == 0 for n, m in zip(given, wanted, strict=True)):
        each = three([n // m for n, m in zip(given, wanted, strict=True)], 1)
        return Windows(maximum, planes, given, wanted, each, each, none, ones)
    uneven = Windows(maximum, planes, given, wanted, ones, ones, none, ones, adaptive=True)
    longest = [max(uneven.past(d, o) - uneven.first(d, o) for o in range(wanted[d])) for d in range(3)]
    return Windows(maximum, planes, given, wanted, three(longest, 1), ones, none, ones, adaptive=True)


def three(values: Any, missing: int, dims: int = 0) -> Three:
    """Numbers of the last dimensions, and what stands for those that are missing; one number stands for all."""
    some = list(values) if isinstance(values, Sequence) else [values] * dims
    some = some * dims if len(some) == 1 and dims else some
    a, b, c = [missing] * (3 - len(some)) + [int(n) for n in some]
    return a, b, c


def geometry(w: Windows) -> list[str]:
    """What every frame knows of the windows, in C++."""

    def flag(value: bool) -> str:
        return str(value).lower()

    return [
        f"[[maybe_unused]] constexpr bool MAXIMUM = {flag(w.maximum)}, PADDING_COUNTS = {flag(w.padding_counts)}, "
        f"ADAPTIVE = {flag(w.adaptive)};",
        f"constexpr int64_t PLANES = {w.planes}, DIVISOR = {w.divisor};",
    ]


def _cpu_space(routine: Centred, device: Device) -> Space:
    why = "The line under {0} outputs stays in the L1 cache."
    tiles = numbers("block", (256, 512, 128, 1024), "tiles of {0}", why, "BLOCK")
    genes = [UNROLL, *([WIDTH] if "avx512" in device.arch else []), tiles]
    return starting(genes, [{"block": 512}, {"unroll": "loops", "block": 1024}, {"block": 128}, {"width": 256}])


def _cpu_emit(routine: Centred, genes: Mapping[str, object]) -> str:
    w: Windows = routine.geometry
    triples = {"IN": w.given, "OUT": w.wanted, "WINDOW": w.window, "STRIDE": w.stride, "PAD": w.pad, "STEP": w.step}
    shape = [*macros(genes, block="BLOCK"), *geometry(w)]
    shape += [f"constexpr int64_t {name}[3] = {{{', '.join(map(str, three))}}};" for name, three in triples.items()]
    return source(routine, "cpu", "pooling/level_01.cpp", shape)


def _across(w: Windows, threads: int, along: int) -> tuple[int, int]:
    """The threads of a row of a block, and the places of the line under their outputs."""
    outputs = -(-w.wanted[2] // along)
    across = -(-outputs // -(-outputs // threads))
    line = w.line(min(across * along, w.wanted[2]))
    return max(across, min(threads, -(-line // 8))), line


def _fits(w: Windows, threads: int, along: int, down: int) -> bool:
    across, line = _across(w, threads, along)
    teams = max(512 // across, 1)  # whatever number of threads is tried
    return down * -(-line // across) <= HELD and teams * down * line * 4 <= SHARED


def _cuda_space(routine: Centred, device: Device) -> Space:
    w: Windows = routine.geometry
    overlap = not w.adaptive and w.stride[1] < w.window[1] and w.step[1] == 1
    downs: tuple[int, ...] = (1,) if w.adaptive or w.wanted[1] == 1 else (4, 8, 2, 1) if overlap else (1, 2, 4)
    flat = w.wanted[1] == 1
    alongs: tuple[int, ...] = (8, 16, 4, 2, 1) if flat else (1, 2, 4)
    sizes = (256, 128, 512)
    downs = tuple(n for n in downs if all(_fits(w, t, 1, n) for t in sizes)) or (1,)
    alongs = tuple(n for n in alongs if all(_fits(w, t, n, max(downs)) for t in sizes)) or (1,)
    if not all(_fits(w, t, a, d) for t in sizes for a in alongs for d in downs):
        raise NotCovered(f"no template covers windows of {w.window[2]} places in a row.")
    several = "{0} rows of outputs a thread share the input rows in which their windows overlap."
    wide = "{0} outputs of a row a thread keep more loads in flight."
    genes = [
        numbers("threads", sizes, "blocks of {0}", "Blocks of {0} threads fill a multiprocessor evenly.", "THREADS"),
        numbers("down", downs, "{0} rows of outputs a thread", several, None, "one row of outputs a thread"),
        numbers("along", alongs, "{0} outputs of a row", wide, None, ""),
    ]
    # An H200: 8 outputs of a row took 2.20 ms, 4 of them 2.45, 2 of them 2.97 (1-D, 6.4 GB); 4 rows of outputs 2.71,
    # 2 of them 2.81, one 3.25 (3-D, 9.7 GB).
    more: Genes = {"along": alongs[1 % len(alongs)]} if flat else {"down": downs[1 % len(downs)]}
    less: Genes = {"along": 4} if flat else {"down": 2, "along": 2}
    return starting(genes, [more, less, {"down": 1, "threads": 512}, {"along": 4}])


def _cuda_emit(routine: Centred, genes: Mapping[str, object]) -> str:
    w: Windows = routine.geometry
    threads, along = int(str(genes["threads"])), int(str(genes["along"]))
    across, line = _across(w, threads, along)
    shape = [*macros(genes, threads="THREADS"), *geometry(w)]
    shape += axes(w)
    shape.append(f"constexpr int ACROSS = {across}, ALONG = {along}, DOWN = {genes['down']}, LINE = {line};")
    return source(routine, "cuda", "pooling/level_01.cu", shape)


def axes(w: Windows) -> list[str]:
    """Sizes by axis, as CUDA C++ has them."""
    triples = {"IN": w.given, "OUT": w.wanted, "WINDOW": w.window, "STRIDE": w.stride, "PAD": w.pad, "STEP": w.step}
    return [
        f"constexpr int {', '.join(f'{name}_{axis} = {n}' for axis, n in zip('ZYX', three, strict=True))};"
        for name, three in triples.items()
    ]


POOLING = Family(
    tuple(f"{kind}{d}d" for kind in SIGNATURES for d in (1, 2, 3)) + VALUES,
    _build,
    {"cpu": Kit(_cpu_space, _cpu_emit), "cuda": Kit(_cuda_space, _cuda_emit)},
)
