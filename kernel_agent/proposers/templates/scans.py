"""Scans: running sums and products along any dimension, in both directions, with or without the element itself.

Rows go by scan/level_01 of the corpus; where the dimension is not the last, columns go by scan/level_02. The overloads
`reverse`, `exclusive` and `reverse_exclusive` are ours: `regions/scans.py` writes them for what modules spell out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.centred import Centred, after, operand, piece
from kernel_agent.proposers.templates.family import Family, Kit
from kernel_agent.proposers.templates.genes import Gene, Space, numbers, starting, strategy
from kernel_agent.proposers.templates.graph import Graph, Node
from kernel_agent.proposers.templates.lowering import DTYPES, names
from kernel_agent.proposers.templates.spaces import UNROLL
from kernel_agent.proposers.templates.spelled import macros, source
from kernel_agent.run.types import Device

STRIP = 32  # neighbouring columns that a device works on together


@dataclass(frozen=True)
class Scan:
    """`outer` x `length` x `inner` elements, scanned along the second of these dimensions."""

    product: bool
    reverse: bool
    exclusive: bool
    outer: int
    length: int
    inner: int

    @property
    def chains(self) -> tuple[int, int]:
        """The scans that go on side by side, neighbouring columns as one, and the elements of each."""
        strips = -(-self.inner // STRIP)
        return self.outer * strips, self.length * min(self.inner, STRIP)


def geometry(core: Node) -> Scan:
    """The scan that a call asks for. Raises NotCovered where it gives another type than it takes as sums."""
    base, overload = names(core.op)
    shape, rank = core.spec.shape, len(core.spec.shape)
    if core.spec.dtype not in DTYPES or core.spec.dtype == "bool" or not rank:
        raise NotCovered(f"no template covers {core.op} that gives {core.spec.dtype}.")
    dim = int(core.args[1]) % rank
    parts = (prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :]))
    return Scan(base == "cumprod", "reverse" in overload, "exclusive" in overload, *parts)


def _build(graph: Graph, core: Node) -> Centred:
    scan = geometry(core)
    columns = scan.length if scan.inner == 1 else scan.inner
    rows = prod(core.spec.shape) // max(columns, 1)
    before = piece([operand(graph, core.args[0], core.op)], rows, columns)
    behind, outputs = after(graph, core, rows, columns)
    return Centred("scan", graph, core, scan, (("in", before), ("out", behind)), outputs, scan.chains)


def _shape(scan: Scan) -> list[str]:
    flags = {"PRODUCT": scan.product, "REVERSE": scan.reverse, "EXCLUSIVE": scan.exclusive}
    lines = [f"constexpr bool {', '.join(f'{name} = {str(value).lower()}' for name, value in flags.items())};"]
    if scan.inner == 1:
        return [*lines, f"constexpr int64_t ROWS = {scan.outer}, COLUMNS = {scan.length};"]
    return [*lines, f"constexpr int64_t OUTER = {scan.outer}, LENGTH = {scan.length}, INNER = {scan.inner};"]


def _frame(scan: Scan, suffix: str) -> str:
    return f"scan/level_{'01' if scan.inner == 1 else '02'}.{suffix}"


def _cpu_space(routine: Centred, device: Device) -> Space:
    scan: Scan = routine.geometry
    if scan.inner > 1:
        why = "The running values of {0} columns stay in the L1 cache."
        tiles = numbers("block", (256, 512, 128, 1024), "strips of {0}", why, "BLOCK")
        return starting([UNROLL, tiles], [{"block": 512}, {"unroll": "loops"}, {"block": 1024}])
    why = "A tile of {0} stays in the L1 cache."
    genes = [UNROLL, numbers("block", (512, 1024, 256, 2048), "tiles of {0}", why, "BLOCK")]
    return starting(genes, [{"block": 1024}, {"unroll": "loops"}, {"block": 256}, {"block": 2048}])


def _cpu_emit(routine: Centred, genes: Mapping[str, object]) -> str:
    scan: Scan = routine.geometry
    return source(routine, "cpu", _frame(scan, "cpp"), [*macros(genes, block="BLOCK"), *_shape(scan)])


def _vector(routine: Centred) -> int:
    return min(piece.vector(4) for _, piece in routine.pieces)


STORE = strategy(
    "store",
    [
        ("stream", "streaming stores", "Output lines leave the L2 cache first."),
        ("plain", "plain stores", "The output may be found in the L2 cache by whoever reads it next."),
    ],
)


def _cuda_space(routine: Centred, device: Device) -> Space:
    scan: Scan = routine.geometry
    flight = "{0} loads of every thread are asked for before the first is used."
    if scan.inner > 1:
        best = _vector(routine)
        wide = "Fewer, wider loads put more bytes in flight for each instruction."
        sizes = [n for n in (1, 2, 4) if n <= best]
        genes: list[Gene] = [
            numbers("vector", sizes, "vectors of {0}", wide, None, ""),
            numbers("unroll", (8, 16, 4), "{0} rows in flight", flight, None),
            STORE,
            numbers("threads", (128, 64, 256), "blocks of {0}", "Blocks of {0} columns.", "THREADS"),
        ]
        return starting(genes, [{"vector": sizes[-1]}, {"unroll": 16}, {"threads": 256, "store": "plain"}])
    side = "Every thread scans {0} neighbours in its registers."
    block = "Blocks of {0} threads share a row and agree on its sums."
    genes = [
        numbers("items", (4, 8), "{0} neighbours a thread", side, None),
        numbers("unroll", (2, 4, 1), "{0} tiles a barrier", flight, None, "one tile a barrier"),
        replace(STORE, choices=STORE.choices[::-1]),
        numbers("threads", (128, 64, 256), "{0} threads a row", block, "THREADS"),
    ]
    # An H200, 32768 rows of 32768: 2.21 ms, by 64 threads 2.24, by 4 tiles a barrier 2.30, by 8 neighbours 3.01.
    return starting(genes, [{"unroll": 4, "store": "stream"}, {"unroll": 1, "threads": 256}, {"items": 8}])


def _cuda_emit(routine: Centred, genes: Mapping[str, object]) -> str:
    scan: Scan = routine.geometry
    shape = [*macros(genes, threads="THREADS"), *_shape(scan)]
    vector = _vector(routine)
    if scan.inner == 1:
        shape.append(f"constexpr int VECTOR = {vector}, ITEMS = {genes['items']}, UNROLL = {genes['unroll']};")
    else:
        shape.append(f"constexpr int VECTOR = {min(vector, int(str(genes['vector'])))}, UNROLL = {genes['unroll']};")
    return source(routine, "cuda", _frame(scan, "cu"), shape, once=True, streamed=genes["store"] == "stream")


SCANS = Family(
    ("cumsum", "cumprod"),
    _build,
    {"cpu": Kit(_cpu_space, _cpu_emit), "cuda": Kit(_cuda_space, _cuda_emit)},
)
