"""Pooling of tensors with channels last on a GPU, by pooling/level_02 of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.centred import Centred, after, operand, piece
from kernel_agent.proposers.templates.family import Family, Kit
from kernel_agent.proposers.templates.genes import Space, numbers, starting, strategy
from kernel_agent.proposers.templates.graph import Graph, Node
from kernel_agent.proposers.templates.pooling import axes, geometry, windows
from kernel_agent.proposers.templates.spelled import macros, source
from kernel_agent.run.types import Device

WIDEST = 4  # channels of a thread


def _build(graph: Graph, core: Node) -> Centred:
    value, wanted = operand(graph, core.args[0], core.op), core.spec.shape
    if core.spec.dtype not in ("float32", "float16", "bfloat16"):
        raise NotCovered(f"no template covers {core.op} of {core.spec.dtype}.")
    channels = wanted[-1]
    found = windows(core, wanted[0], value.shape[1:-1], wanted[1:-1])
    before = piece([value], prod(value.shape) // channels, channels)
    behind, outputs = after(graph, core, prod(wanted) // channels, channels)
    pieces = (("in", before), ("out", behind))
    return Centred("pooling of channels last", graph, core, found, pieces, outputs, (prod(wanted), 1))


def _space(routine: Centred, device: Device) -> Space:
    best = min(routine.piece(name).vector(WIDEST) for name in ("in", "out"))
    threads = "Blocks of {0} threads fill a multiprocessor evenly."
    genes = [
        strategy("vector", [(n, f"{n} channels a thread", "Wide loads.") for n in (best, best // 2) if n]),
        numbers("threads", (256, 128, 512), "blocks of {0}", threads, "THREADS"),
    ]
    return starting(genes, [{"threads": 128}, {"vector": max(best // 2, 1)}, {"threads": 512}])


def _emit(routine: Centred, genes: Mapping[str, object]) -> str:
    w = routine.geometry
    shape = [*macros(genes, threads="THREADS"), *geometry(w), *axes(w)]
    shape.append(f"constexpr int CHANNELS = {routine.core.spec.shape[-1]}, VECTOR = {genes['vector']};")
    return source(routine, "cuda", "pooling/level_02.cu", shape)


POOLING_LAST = Family(
    tuple(f"{kind}_pool{d}d_last" for kind in ("max", "avg", "adaptive_avg") for d in (2, 3)),
    _build,
    {"cuda": Kit(_space, _emit)},
)
