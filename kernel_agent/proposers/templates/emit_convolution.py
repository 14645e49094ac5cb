"""Convolutions in CUDA C++, written into corpus/kernels/convolution/level_03.cu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from math import prod
from textwrap import indent

from kernel_agent.proposers.templates.convolution import Convolution, ConvolutionShape, located
from kernel_agent.proposers.templates.convolution_tile import W_STAGES, ConvolutionTile, tiled
from kernel_agent.proposers.templates.emit_product import instruction
from kernel_agent.proposers.templates.express import fill, helpers, index, operand, summed, text
from kernel_agent.proposers.templates.program import Output, Read
from kernel_agent.proposers.templates.tails import tail_lines
from kernel_agent.proposers.templates.writer import run, tensors, types


def emit(convolution: Convolution, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the convolution's leaves, its outputs and scratch."""
    tile = tiled(convolution.shape, genes)
    last = "launch(t, static_cast<float*>(scratch.data_ptr()), out0.device());"
    places = {
        "shape": "\n".join(_shape(convolution, tile, str(genes["arithmetic"]))),
        "tables": "\n".join(_tables(convolution.shape, tile)),
        "tensors": tensors(convolution),
        "operands": _operands(convolution),
        "instruction": instruction(tile.channels),
        "tail": _tail(convolution),
        "run": run(convolution, [last], ["scratch"]),
    }
    kinds = types(convolution)
    places["math"] = helpers("math/level_01.cu", "".join(places.values()), kinds)
    return fill(text("convolution/level_03.cu"), places)


def scratch(convolution: Convolution, genes: Mapping[str, object]) -> int:
    """Floats in which the copies of input and weights wait."""
    return tiled(convolution.shape, genes).scratch


def _shape(convolution: Convolution, tile: ConvolutionTile, arithmetic: str) -> list[str]:
    of, lies = convolution.shape, convolution.lies
    schedule = of.schedule
    strides = [window.stride for window in schedule.windows]
    ones, (given, made) = [1, 1, 1], (of.given[0], of.made[0])
    weights = (of.taps, made * of.taps) if schedule.turned else (given * of.taps, of.taps)
    counts = len(schedule.groups), len(schedule.phases), len(schedule.lists), of.taps, sum(map(len, tile.steps))
    return [
        f"constexpr int64_t IMAGES = {of.images}, IMAGE = {lies.pitch if lies else given * prod(of.given[1])};",
        f"constexpr int IN = {given}, {_three('IN', of.given[1])};",
        f"constexpr int OUT = {made}, {_three('OUT', of.made[1])};",
        f"constexpr int {_three('STRIDE', ones if schedule.turned else strides)};",
        f"constexpr int {_three('APART', strides if schedule.turned else ones)};",
        f"constexpr int {_three('ORIGIN', schedule.origin)};",
        f"constexpr int {_three('HALO', schedule.halo)};",
        f"constexpr bool LINE = {'true' if tile.line else 'false'};",
        f"constexpr int W_OUT = {weights[0]}, W_IN = {weights[1]};",
        "constexpr int GROUPS = {}, PHASES = {}, LISTS = {}, TAPS = {}, STEPS = {};".format(*counts),
        f"constexpr int {_three('TILE', tile.sides)}, TILE_N = {tile.channels};",
        f"constexpr int TALL = {tile.tall}, WIDE = {tile.wide};",
        f"constexpr int TURNS = {tile.turns};",
        f"constexpr int UNITS = {tile.units}, TOGETHER = {tile.together};",
        f"constexpr int STAGES = {tile.stages}, W_STAGES = {W_STAGES};",
        f"constexpr int JOINT = {tile.joint}, RESIDENT = {tile.resident};",
        f"constexpr Way WAY = Way::{arithmetic};",
    ]


def _three(name: str, values: Sequence[int]) -> str:
    return ", ".join(f"{name}_{side} = {value}" for side, value in zip("DHW", values, strict=True))


def _tables(of: ConvolutionShape, tile: ConvolutionTile) -> list[str]:
    """The tables that say which taps meet where; see the frame."""
    schedule, lists = of.schedule, of.schedule.lists
    steps = list(chain(*tile.steps))
    rows = [
        *(
            (f"GROUP_{side}[GROUPS]", values)
            for side, values in zip("DHW", zip(*schedule.groups, strict=True), strict=True)
        ),
        *(
            (f"PHASE_{side}[PHASES]", values)
            for side, values in zip("DHW", zip(*schedule.phases, strict=True), strict=True)
        ),
        ("LIST[PHASES + 1]", [sum(one.phase < phase for one in lists) for phase in range(len(schedule.phases) + 1)]),
        ("GROUP[LISTS]", [one.group for one in lists]),
        ("FIRST[LISTS + 1]", [0, *accumulate(len(one.taps) for one in lists)]),
        ("TAP[TAPS]", [number for one in lists for number, _ in one.taps]),
        ("BEGIN[LISTS + 1]", [0, *accumulate(map(len, tile.steps))]),
    ]
    named = [(f"int {name}", ", ".join(map(str, values))) for name, values in rows]
    named.append(("uint32_t STEP[STEPS]", ", ".join(f"0x{step:X}" for step in steps)))
    return [f"__constant__ {name} = {{{values}}};" for name, values in named]


def _operands(of: Convolution) -> str:
    """The functions that say where input and weights begin."""
    order = [leaf.node for leaf in of.leaves]
    begin = f" + {of.lies.begin}" if of.lies and of.lies.begin else ""
    head = "__device__ __forceinline__ const float* {}(const Tensors& t) {{ return t.in{}; }}"
    pairs = (("input_of", of.x, begin), ("weights_of", of.weight, ""))
    return "\n".join(head.format(name, f"{order.index(leaf.node)}{more}") for name, leaf, more in pairs)


def _place(of: Convolution, output: Output) -> str:
    """Where in an output one of the sums goes."""
    slab = output.slab
    if slab is None or slab.run != of.shape.image:
        return "(n * OUT + c) * POINTS + p"
    return f"n * {slab.pitch} + int64_t(c) * POINTS + p"


def _tail(of: Convolution) -> str:
    """The function that finishes one of the sums: terms in order, then the stores."""
    order = [leaf.node for leaf in of.leaves]

    def element(term: Read) -> str:
        found = located(term, of.shape)
        assert found is not None
        at = summed(str(term.offset), *(index(pattern, name) for pattern, name in zip(found, "ncp", strict=True)))
        return f"t.in{order.index(term.leaf.node)}[{at}]"

    body = tail_lines(of.tail, of.value, "sum", element)
    for n, output in enumerate(of.outputs):
        value, to = operand(of.tail, output.term), f"t.out{n}[{_place(of, output)}]"
        body.append(f"{to} = {value};" if output.spec.dtype == "float32" else f"k_store({to}, {value});")
    head = "__device__ __forceinline__ void finish(const Tensors& t, int64_t n, int c, int64_t p, float sum) {"
    return "\n".join([head, indent("\n".join(body), "  "), "}"])
