"""Depthwise convolutions: each channel comes of one channel. By convolution/level_04 and level_05 of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.centred import Centred, Piece, after, operand, piece
from kernel_agent.proposers.templates.family import Family, Kit
from kernel_agent.proposers.templates.genes import Space, numbers, starting
from kernel_agent.proposers.templates.graph import Graph, Node, Shape
from kernel_agent.proposers.templates.lowering import DTYPES
from kernel_agent.proposers.templates.pooling import Windows, axes, three
from kernel_agent.proposers.templates.spelled import macros, source
from kernel_agent.run.types import Device

TAPS = 49  # of a plane of the window at most: each has a register
WIDEST = 4  # channels of a thread where they lie last
HELD = 128  # numbers that a thread keeps at most where channels lie last: sums, and a line of the input
EACH = 4  # tiles that a thread makes with the weights that its block has read
LANES = 32  # threads beside each other that have neighbouring channels
SHARED = 48 << 10  # bytes of shared memory that every block may have


@dataclass(frozen=True)
class Depthwise:
    """Windows over batch x channels planes or spaces; an output channel c reads input channel c / `multiplier`."""

    windows: Windows
    channels: int
    multiplier: int


def _geometry(core: Node, given: Shape, wanted: Shape, weight: Shape) -> Depthwise:
    """From the shapes of the input and the result with channels first, and of the weight."""
    dims = len(weight) - 2
    stride, pad, step = ([*core.args[3:6], None, None, None][n] for n in range(3))
    window = three(weight[2:], 1)
    if window[1] * window[2] > TAPS:
        raise NotCovered(f"no template covers a depthwise convolution by windows of {list(weight[2:])}.")
    inside, out = (three(shape[2:], 1) for shape in (given, wanted))
    found = Windows(
        maximum=False,
        planes=wanted[0],
        given=inside,
        wanted=out,
        window=window,
        stride=three(stride or 1, 1, dims),
        pad=three(pad or 0, 0, dims),
        step=three(step or 1, 1, dims),
    )
    return Depthwise(found, given[1], weight[0] // given[1])


def _weight(graph: Graph, core: Node) -> Piece:
    """The taps of each output channel, a row each."""
    value = operand(graph, core.args[1], core.op)
    return piece([value], value.shape[0], prod(value.shape[1:]))


def _build(graph: Graph, core: Node) -> Centred:
    given, weight = (operand(graph, core.args[n], core.op).shape for n in (0, 1))
    return _around(graph, core, _geometry(core, given, core.spec.shape, weight), "depthwise")


def _around(graph: Graph, core: Node, geometry: Depthwise, variety: str) -> Centred:
    """The kernel around the convolution, by rows of what lies together of its input and its result."""
    value, wanted = operand(graph, core.args[0], core.op), core.spec.shape
    if core.spec.dtype not in DTYPES:
        raise NotCovered(f"no template covers {core.op} of {core.spec.dtype}.")
    before = piece([value], prod(value.shape[:-1]), value.shape[-1])
    behind, outputs = after(graph, core, prod(wanted[:-1]), wanted[-1])
    pieces = (("in", before), ("weight", _weight(graph, core)), ("out", behind))
    return Centred(variety, graph, core, geometry, pieces, outputs, (prod(wanted), 1))


def _shape(found: Depthwise) -> list[str]:
    return [
        f"constexpr int64_t BATCH = {found.windows.planes}, CHANNELS = {found.channels};",
        f"constexpr int MULTIPLIER = {found.multiplier};",
        *axes(found.windows),
    ]


def _space(routine: Centred, device: Device) -> Space:
    w: Windows = routine.geometry.windows
    flat = w.wanted[1] == 1
    overlap = w.stride[1] < w.window[1]
    downs: tuple[int, ...] = (1,) if flat else (4, 2, 8, 1) if overlap else (1, 2, 4)
    alongs = (4, 2, 8, 1) if flat else (1, 2)
    several = "{0} rows of outputs a thread share the input rows in which their windows overlap."
    wide = "{0} outputs of a row a thread keep more loads in flight."
    genes = [
        numbers("threads", (256, 128, 512), "blocks of {0}", "Blocks of {0} threads share lines.", "THREADS"),
        numbers("down", downs, "{0} rows of outputs a thread", several, None, "one row of outputs a thread"),
        numbers("along", alongs, "{0} outputs of a row", wide, None, ""),
    ]
    other = {"along": 2} if flat else {"down": downs[1 % len(downs)]}
    more = {"along": 8} if flat else {"down": downs[2 % len(downs)]}
    return starting(genes, [other, more, {"threads": 128}, {"along": 2}])


def _emit(routine: Centred, genes: Mapping[str, object]) -> str:
    found: Depthwise = routine.geometry
    threads, along = int(str(genes["threads"])), int(str(genes["along"]))
    outputs = -(-found.windows.wanted[2] // along)
    across = -(-outputs // -(-outputs // threads))
    shape = [*macros(genes, threads="THREADS"), *_shape(found)]
    shape.append(f"constexpr int ACROSS = {across}, ALONG = {along}, DOWN = {genes['down']};")
    return source(routine, "cuda", "convolution/level_04.cu", shape)


def _build_last(graph: Graph, core: Node) -> Centred:
    given, weight = (operand(graph, core.args[n], core.op).shape for n in (0, 1))
    geometry = _geometry(core, _first(given), _first(core.spec.shape), weight)
    if geometry.multiplier > 1 or prod(weight[2:]) * LANES * WIDEST * 4 > SHARED:
        raise NotCovered(f"no template covers {core.op} of {weight[0]} channels by windows of {list(weight[2:])}.")
    return _around(graph, core, geometry, "depthwise of channels last")


def _first(shape: Shape) -> Shape:
    """A shape with channels last as one with channels first."""
    return shape[0], shape[-1], *shape[1:-1]


def _space_last(routine: Centred, device: Device) -> Space:
    w: Windows = routine.geometry.windows
    best = min(routine.piece(name).vector(WIDEST) for name in ("in", "out"))
    threads = "Blocks of {0} threads share the weights of their channels."
    wide = "{0} outputs of a row a thread share what their windows have in common."
    several = "{0} rows of outputs a thread share the input rows in which their windows overlap."
    downs = (2, 1, 4) if w.wanted[1] > 1 else (1,)
    alongs = tuple(n for n in (4, 2, 8) if best * n * max(downs) + best * w.line(n) <= HELD) or (1,)
    genes = [
        numbers("vector", [n for n in (best, best // 2) if n], "{0} channels a thread", "Loads of {0} channels.", None),
        numbers("threads", (256, 128), "blocks of {0}", threads, "THREADS"),
        numbers("along", alongs, "{0} outputs of a row", wide, None),
        numbers("down", downs, "{0} rows of outputs", several, None, "one row of outputs"),
    ]
    return starting(genes, [{"down": 1}, {"along": alongs[-1]}, {"threads": 128}])


def _emit_last(routine: Centred, genes: Mapping[str, object]) -> str:
    found: Depthwise = routine.geometry
    vector = int(str(genes["vector"]))
    across = min(LANES, -(-found.channels // vector))
    shape = [*macros(genes, threads="THREADS"), *_shape(found)]
    tile = f"ALONG = {genes['along']}, DOWN = {genes['down']}, EACH = {EACH}"
    shape.append(f"constexpr int VECTOR = {vector}, ACROSS = {across}, {tile};")
    return source(routine, "cuda", "convolution/level_05.cu", shape)


DEPTHWISE = Family(tuple(f"depthwise{d}d" for d in (1, 2, 3)), _build, {"cuda": Kit(_space, _emit)})

DEPTHWISE_LAST = Family(
    tuple(f"depthwise{d}d_last" for d in (2, 3)), _build_last, {"cuda": Kit(_space_last, _emit_last)}
)
