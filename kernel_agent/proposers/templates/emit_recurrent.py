"""Recurrent networks in CUDA C++, written into corpus/kernels/recurrent/level_01.cu; and what can be varied in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from textwrap import indent

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.express import fill, helpers, text
from kernel_agent.proposers.templates.genes import Space, starting, strategy
from kernel_agent.proposers.templates.graph import Graph, Leaf
from kernel_agent.proposers.templates.recurrent import RESULTS, Recurrent, RecurrentShape, recurrent_of
from kernel_agent.proposers.templates.recurrent_tile import RecurrentTile, library_us, ranked, tiled
from kernel_agent.run.types import Device

GAIN = 1.1  # over the library, as predicted, from which a kernel of ours is taken
CHOICES = 4  # tiles that are worth a try


def build(graph: Graph, device: Device) -> Recurrent:
    """One kernel for a graph. Raises NotCovered where it covers none, or the library is predicted to be as fast."""
    found = recurrent_of(graph)
    ours = next(iter(ranked(found.shape, device).values())).us(device)
    theirs = library_us(found.shape)
    if theirs < GAIN * ours:
        raise NotCovered("the library is predicted to compute this recurrent network as fast as a kernel of ours.")
    return replace(found, spares=int((theirs - ours) * (device.copy_gbps or 0) * 1e3))


def recurrent_space(recurrent: Recurrent, device: Device) -> Space:
    """The one gene of a recurrent network: its tile."""
    tiles = list(islice(ranked(recurrent.shape, device).values(), CHOICES))
    gene = strategy("tile", [(tile.name, _phrase(tile), _why(tile)) for tile in tiles])
    return starting([gene], [{"tile": tile.name} for tile in tiles[1:]])


def _phrase(tile: RecurrentTile) -> str:
    at_once = f", {tile.wave} layers at once" if tile.wave > 1 else ""
    return f"{tile.units} units a block{at_once}"


def _why(tile: RecurrentTile) -> str:
    return f"Weights stay in the registers of {tile.blocks} blocks over all steps, and states go through the L2 cache."


def scratch(recurrent: Recurrent, _: Mapping[str, object]) -> int:
    """Floats in which the states of all steps stand."""
    return recurrent.shape.history


def emit(recurrent: Recurrent, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the leaves, the results and the history."""
    tile = tiled(recurrent.shape, str(genes["tile"]))
    places = {
        "math": helpers("math/level_01.cu", "k_tanh k_sigmoid", ()),
        "shape": "\n".join(_shape(recurrent.shape, tile)),
        "run": _run(recurrent),
    }
    return fill(text("recurrent/level_01.cu"), places)


def _shape(of: RecurrentShape, tile: RecurrentTile) -> list[str]:
    sizes = {
        "BATCH": of.batch,
        "STEPS": of.steps,
        "INPUT": of.given,
        "HIDDEN": of.hidden,
        "LAYERS": of.layers,
        "DIRECTIONS": of.directions,
    }
    return [
        f"constexpr bool LSTM = {str(of.lstm).lower()};",
        f"constexpr int {', '.join(f'{name} = {size}' for name, size in sizes.items())};",
        f"constexpr bool BATCH_FIRST = {str(of.batch_first).lower()};",
        f"constexpr int UNITS = {tile.units}, WAVE = {tile.wave};",
        f"constexpr int LANE_ROWS = {tile.lanes}, ROWS = {tile.rows};",
        f"constexpr int TOGETHER = {tile.together};",
    ]


def _run(recurrent: Recurrent) -> str:
    order = [leaf.node for leaf in recurrent.leaves]

    def read(leaf: Leaf) -> str:
        return f"static_cast<const float*>(in{order.index(leaf.node)}.data_ptr())"

    lines = ["Tensors t{};", f"t.x = {read(recurrent.x)};"]
    pairs = zip(("h0", "c0"), recurrent.initial, strict=False)
    lines += [f"t.{name} = {read(leaf)};" for name, leaf in pairs if leaf is not None]
    for n, some in enumerate(recurrent.weights):
        lines += [f"t.weights[{n}][{m}] = {read(leaf)};" for m, leaf in enumerate(some)]
    for n, result in enumerate(recurrent.wanted):
        lines.append(f"t.{RESULTS[result]} = static_cast<float*>(out{n}.data_ptr());")
    lines.append("launch(t, static_cast<float*>(scratch.data_ptr()), out0.device());")
    every = [*(f"in{n}" for n in range(len(order))), *(f"out{n}" for n in range(len(recurrent.wanted))), "scratch"]
    arguments = ", ".join(f"tvm::ffi::TensorView {name}" for name in every)
    return f"void run({arguments}) {{\n" + indent("\n".join(lines), "  ") + "\n}"
