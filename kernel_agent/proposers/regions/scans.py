"""Scans that a module spells out with other calls, as one call; and a few long ones piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.rule import FEW, LONG, Writer
from kernel_agent.proposers.regions.views import users
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import FILLS, names
from kernel_agent.proposers.templates.scans import geometry

SCANS = ("cumsum", "cumprod")
SHORTEST = {True: 1 << 12, False: 32}  # elements of a piece at least, where they follow each other and else


def spelled(graph: Graph) -> Graph:
    """A scan between two flips goes backwards; one behind a row of zeros, or ones, leaves its own element out."""
    nodes = {node.name: node for node in graph.nodes}
    readers = users(graph, graph.leaves)
    made = dict[str, Node]()

    def alone(argument: object, base: str | tuple[str, ...]) -> Node | None:
        """The call behind an argument, if it is of this name and nobody else reads what it gives."""
        node = nodes.get(argument.node) if isinstance(argument, Ref) else None
        if node is None or names(node.op)[0] not in base or len(readers.get(node.name, ())) > 1:
            return None
        return None if node.name in graph.outputs else made.get(node.name, node)

    for node in graph.nodes:
        found = _backwards(node, alone) or _exclusive(node, alone)
        if found is not None:
            made[node.name] = found
    return replace(graph, nodes=tuple(made.get(n.name, n) for n in graph.nodes)) if made else graph


Alone = Callable[[object, str | tuple[str, ...]], Node | None]


def _backwards(node: Node, alone: Alone) -> Node | None:
    """flip(scan(flip(x)))."""
    if names(node.op)[0] != "flip":
        return None
    scan = alone(node.args[0], SCANS)
    inner = alone(scan.args[0], ("flip",)) if scan and _floats(scan) else None
    if scan is None or inner is None:
        return None
    rank = len(node.spec.shape)
    dims = {tuple(d % rank for d in n.args[1]) for n in (node, inner)} | {(scan.args[1] % rank,)}
    if len(dims) > 1 or "reverse" in names(scan.op)[1]:
        return None
    return _scan(node, scan, inner.args[0], reverse=True)


def _exclusive(node: Node, alone: Alone) -> Node | None:
    """cat((zeros, scan(x without its last))), and for products with ones."""
    if names(node.op)[0] != "cat" or len(node.args[0]) != 2:
        return None
    start, (first, second) = "zeros", node.args[0]
    scan = alone(second, SCANS)
    if scan is None or not _floats(scan) or names(scan.op)[1] != "default":
        return None
    start = "ones" if names(scan.op)[0] == "cumprod" else "zeros"
    filled, cut = alone(first, tuple(FILLS)), alone(scan.args[0], ("narrow", "slice"))
    rank = len(node.spec.shape)
    dim = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % rank
    if filled is None or cut is None or not names(filled.op)[0].startswith(start) or scan.args[1] % rank != dim:
        return None
    size = node.spec.shape[dim]
    from_start = cut.args[1] % rank == dim and cut.args[2] in (0, None) and len(cut.args) == 4
    sizes = filled.spec.shape[dim] == 1 and cut.spec.shape[dim] == size - 1
    if not (from_start and sizes) or not isinstance(cut.args[0], Ref) or cut.spec.dtype != node.spec.dtype:
        return None
    return _scan(node, scan, cut.args[0], exclusive=True)


def _floats(scan: Node) -> bool:
    return not scan.kwargs and len(scan.args) == 2 and scan.spec.dtype in ("float32", "float16", "bfloat16")


def _scan(node: Node, scan: Node, of: object, reverse: bool = False, exclusive: bool = False) -> Node:
    """A scan under another call's name."""
    exclusive |= "exclusive" in names(scan.op)[1]
    parts = [*(["reverse"] if reverse else []), *(["exclusive"] if exclusive else [])]
    return Node(node.name, f"aten.{names(scan.op)[0]}.{'_'.join(parts)}", (of, scan.args[1]), {}, node.outputs)


def long_scan(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A few long running sums go piece by piece: the pieces' sums are scanned first, and each piece begins with its."""
    if names(node.op)[0] != "cumsum" or node.kwargs or node.spec.dtype != "float32":
        return None
    try:
        scan = geometry(node)
    except NotCovered:
        return None
    if not isinstance(node.args[0], Ref) or known[node.args[0].node].shape != node.spec.shape:
        return None
    (chains, length), overload = scan.chains, names(node.op)[1]
    most = scan.length // SHORTEST[scan.inner == 1]
    wanted = min(-(-2 * FEW // max(chains, 1)), most)
    parts = next((p for p in range(max(wanted, 1), most + 1) if scan.length % p == 0), 1)
    if chains >= FEW or length <= LONG or parts == 1:
        return None
    w, shape = Writer(node, known), (scan.outer, parts, scan.length // parts, scan.inner)
    few = (scan.outer, parts, scan.inner)
    pieces = w.call("view.default", node.args[0], list(shape), shape=shape)
    sums = w.call("sum.dim_IntList", pieces, [2], False, shape=few)
    before = w.call(f"cumsum.{'reverse_' if scan.reverse else ''}exclusive", sums, 1, shape=few)
    wide = (scan.outer, parts, 1, scan.inner)
    start = w.call("view.default", before, list(wide), shape=wide)
    own = w.call(f"cumsum.{overload}", pieces, 2, shape=shape)
    whole = w.call("add.Tensor", own, start, shape=shape)
    w.call("view.default", whole, list(node.spec.shape), shape=node.spec.shape, name=node.name)
    assert prod(shape) == prod(node.spec.shape)
    return w.calls
