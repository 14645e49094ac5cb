"""Lookups: embedding, gather, index_select and indexing by one tensor, by gather/level_01 of the corpus.

An index outside of what there is gives NaN, where PyTorch raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.centred import Centred, after, operand, piece
from kernel_agent.proposers.templates.family import Family, Kit
from kernel_agent.proposers.templates.genes import Space, numbers, starting
from kernel_agent.proposers.templates.graph import Graph, Node, Shape
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.scans import STORE
from kernel_agent.proposers.templates.spaces import UNROLL
from kernel_agent.proposers.templates.spelled import macros, source
from kernel_agent.proposers.templates.values import Value, fit, reshape
from kernel_agent.run.types import Device


@dataclass(frozen=True)
class Lookup:
    """Of `outer` x `given` x `inner` elements `outer` x `wanted` x `inner` are taken.

    `shared` says that one index names all inner elements.
    """

    outer: int
    given: int
    wanted: int
    inner: int
    shared: bool


def _build(graph: Graph, core: Node) -> Centred:
    of, index, dim, shared = _operands(core)
    table = operand(graph, of, core.op)
    indices = operand(graph, index, core.op, ("int64",))
    dim %= max(len(table.shape), 1)
    outer, given, inner = prod(table.shape[:dim]), table.shape[dim], prod(table.shape[dim + 1 :])
    wanted = prod(indices.shape) if shared else indices.shape[dim]
    sizes = [(*shape[:dim], *shape[dim + 1 :]) for shape in (table.shape, indices.shape)]
    if not shared and sizes[0] != sizes[1]:
        raise NotCovered(f"no template covers {core.op} by indices of another shape.")
    look = Lookup(outer, given, wanted, inner, shared)
    rows, columns = (outer * wanted, inner) if inner > 1 else (outer, wanted)
    source_rows, source_columns = (outer * given, inner) if inner > 1 else (outer, given)
    behind, outputs = after(graph, core, rows, columns)
    places = fit(reshape(indices, (1, wanted, 1)), (outer, wanted, inner)) if shared else indices
    pieces = (
        ("in", piece([table], source_rows, source_columns)),
        ("at", piece([_plain(places)], rows, columns)),
        ("out", behind),
    )
    if not pieces[1][1].plain:
        raise NotCovered(f"no template computes the indices of {core.op}.")
    return Centred("lookup", graph, core, look, pieces, outputs, (prod(core.spec.shape), 1))


def _plain(value: Value) -> Value:
    """A value of all dimensions as one row."""
    shape: Shape = (prod(value.shape),)
    return reshape(value, shape)


def _operands(core: Node) -> tuple[Any, Any, int, bool]:
    """The table, the indices, the dimension that they are of, and whether each names all that follows."""
    base, args = names(core.op)[0], core.args
    if base == "embedding":
        return args[0], args[1], 0, True
    if base == "index_select":
        return args[0], args[2], int(args[1]), True
    if base == "gather":
        return args[0], args[2], int(args[1]), False
    raise NotCovered(f"no template covers {core.op}.")


def _shape(look: Lookup) -> list[str]:
    return [
        f"constexpr bool SHARED = {str(look.shared).lower()};",
        f"constexpr int64_t OUTER = {look.outer}, GIVEN = {look.given}, WANTED = {look.wanted}, INNER = {look.inner};",
    ]


def _cpu_space(routine: Centred, device: Device) -> Space:
    tiles = numbers("block", (1024, 4096, 256), "tiles of {0}", "Tiles of {0} share the work out.", "BLOCK")
    return starting([UNROLL, tiles], [{"block": 4096}, {"unroll": "loops"}, {"block": 256}])


def _cpu_emit(routine: Centred, genes: Mapping[str, object]) -> str:
    return source(routine, "cpu", "gather/level_01.cpp", [*macros(genes, block="BLOCK"), *_shape(routine.geometry)])


def _vector(routine: Centred) -> int:
    look: Lookup = routine.geometry
    if not look.shared or look.inner == 1:
        return 1
    return min(routine.piece(name).vector(4) for name in ("in", "out"))


def _cuda_space(routine: Centred, device: Device) -> Space:
    flight = "{0} lookups of every thread are on their way at once."
    genes = [
        numbers("unroll", (2, 4, 1), "{0} lookups in flight", flight, None, "one lookup in flight"),
        STORE,
        numbers("threads", (256, 128, 512), "blocks of {0}", "Blocks of {0} threads.", "THREADS"),
    ]
    return starting(genes, [{"unroll": 4}, {"store": "plain"}, {"threads": 128, "unroll": 1}])


def _cuda_emit(routine: Centred, genes: Mapping[str, object]) -> str:
    shape = [*macros(genes, threads="THREADS"), *_shape(routine.geometry)]
    shape.append(f"constexpr int VECTOR = {_vector(routine)}, UNROLL = {genes['unroll']};")
    return source(routine, "cuda", "gather/level_01.cu", shape, streamed=genes["store"] == "stream")


LOOKUPS = Family(
    ("embedding", "gather", "index_select"),
    _build,
    {"cpu": Kit(_cpu_space, _cpu_emit), "cuda": Kit(_cuda_space, _cuda_emit)},
)
