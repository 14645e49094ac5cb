"""Kernels around one operator: pointwise work on what it reads, the operator, pointwise work on what it gives.

The operator's frame in the corpus calls the work before it by the name of a piece and by an element's row and column,
and hands its results to the work after it in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref
from kernel_agent.proposers.templates.lowering import DTYPES, lowered, names
from kernel_agent.proposers.templates.program import Folded, Output, Placing, Read, Term, nameless
from kernel_agent.proposers.templates.strides import Pattern, normal, split
from kernel_agent.proposers.templates.values import Load, Value, fit, lift


@dataclass(frozen=True)
class Piece:
    """Pointwise terms over rows x columns elements, and those of them that are its results.

    A read of the node `given` is no read: the frame hands over its value.
    """

    rows: int
    columns: int
    terms: tuple[Term, ...]
    results: tuple[int, ...]
    given: str | None = None

    def places(self, i: int) -> tuple[Pattern, Pattern] | None:
        """Where the row of a Read begins and how its elements follow; None where only both together say it."""
        term = self.terms[i]
        assert isinstance(term, Read)
        return split(term.pattern, self.columns)

    def contiguous(self, i: int) -> bool:
        """Whether a Read's elements follow each other along the row."""
        halves = self.places(i)
        return halves is not None and halves[1] == ((self.columns, 1),)

    @property
    def reads(self) -> tuple[int, ...]:
        """The terms that are read from memory."""
        return tuple(i for i, t in enumerate(self.terms) if isinstance(t, Read) and t.leaf.node != self.given)

    @property
    def plain(self) -> bool:
        """Whether it hands over what it reads as it is."""
        return len(self.terms) == 1

    def vector(self, wanted: int) -> int:
        """The most elements, at most `wanted`, that every row and every contiguous leaf can be cut into."""
        sizes = [self.columns]
        for i in self.reads:
            term, halves = self.terms[i], self.places(i)
            if isinstance(term, Read) and halves is not None and self.contiguous(i):
                sizes += [term.offset, *(stride for _, stride in halves[0])]
        while any(size % wanted for size in sizes):
            wanted //= 2
        return wanted


@dataclass(frozen=True)
class Centred:
    """A kernel's work around `core`. `geometry` is what its family knows of it; its frame names the `pieces`."""

    variety: str
    graph: Graph
    core: Node
    geometry: Any
    pieces: tuple[tuple[str, Piece], ...]
    outputs: tuple[Output, ...]
    chains: tuple[int, int]

    spares = 0  # what a kernel of ours saves beside traffic, in bytes of a copy

    def piece(self, name: str) -> Piece:
        """The piece of a name."""
        return dict(self.pieces)[name]

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        read = {p.terms[i].leaf.node for _, p in self.pieces for i in p.reads}  # type: ignore[union-attr]
        return tuple(leaf for name, leaf in self.graph.leaves.items() if name in read)

    @property
    def terms(self) -> tuple[Term, ...]:
        """All pointwise operations."""
        return tuple(term for _, piece in self.pieces for term in piece.terms)

    @property
    def likeness(self) -> object:
        """Equal for routines that one kernel serves."""
        alike = tuple((name, p.rows, p.columns, nameless(_apart(p), self.leaves), p.results) for name, p in self.pieces)
        return self.variety, self.geometry, alike, self.outputs


def _apart(piece: Piece) -> tuple[Term, ...]:
    """The terms, what the frame hands over under one name."""
    return tuple(
        replace(t, leaf=replace(t.leaf, node="given")) if isinstance(t, Read) and t.leaf.node == piece.given else t
        for t in piece.terms
    )


def operand(graph: Graph, argument: Any, op: str, also: tuple[str, ...] = ()) -> Value:
    """What an operator's argument is, over the leaves of the graph, which may be of other types `also`.

    Raises NotCovered where that is not covered.
    """
    if not isinstance(argument, Ref):
        raise NotCovered(f"no template covers {op} of {argument!r}.")
    if argument.node in graph.leaves:
        leaf = graph.leaves[argument.node]
        if leaf.spec.dtype not in (*DTYPES, *also):
            raise NotCovered(f"templates read {', '.join(DTYPES)}, and {op} reads {leaf.spec.dtype}.")
        return Load(leaf, leaf.spec.shape)
    value = lowered(replace(graph, outputs=(argument.node,))).get(argument.node)
    if not isinstance(value, Value):
        raise NotCovered(f"no template covers what {op} reads of {argument.node}.")
    return value


def piece(values: Sequence[Value], rows: int, columns: int, given: str | None = None) -> Piece:
    """The work of values that each have rows x columns elements. Raises NotCovered where it is not pointwise."""
    if rows * columns == 0:
        raise NotCovered("the module's tensors are empty for these inputs: there is nothing to make faster.")
    placing, whole = Placing(rows * columns, columns), normal([(rows * columns, 1)])
    results = tuple(placing.place(value, (whole, 0)) for value in values)
    for term in placing.terms:
        if isinstance(term, Folded):
            raise NotCovered("no template folds before or after this operator in the same kernel.")
        if isinstance(term, Read) and term.leaf.node == given and (term.pattern, term.offset) != (whole, 0):
            raise NotCovered(f"no template rearranges what {given} gives.")
    return Piece(rows, columns, tuple(placing.terms), results, given)


def after(graph: Graph, core: Node, rows: int, columns: int) -> tuple[Piece, tuple[Output, ...]]:
    """The work on what an operator gives, and the tensors that it ends in.

    Raises NotCovered where a tensor is wanted that is not of its size, or that does not come of it.
    """
    spec, specs = core.spec, {node.name: node.spec for node in graph.nodes if node.name in graph.outputs}
    leaf = Leaf(core.name, spec, None)
    others = tuple(node for node in graph.nodes if node is not core)
    known = lowered(replace(graph, leaves={**graph.leaves, core.name: leaf}, nodes=others))
    values = []
    for name in graph.outputs:
        value = known.get(name)
        if not isinstance(value, Value) or prod(specs[name].shape) != prod(spec.shape):
            raise NotCovered(f"no template gives {name} beside {core.name}: it is of another size.")
        values.append(fit(lift(value), specs[name].shape))
    work = piece(values, rows, columns, core.name)
    outputs = tuple(Output(i, specs[name], True) for i, name in zip(work.results, graph.outputs, strict=True))
    reads_core = _resting(work, core.name)
    if not all(output.term in reads_core for output in outputs):
        raise NotCovered(f"no template gives what does not come of {names(core.op)[0]} beside it.")
    return work, outputs


def _resting(work: Piece, core: str) -> set[int]:
    """The terms that rest on what the frame hands over."""
    found = set[int]()
    for i, term in enumerate(work.terms):
        args = getattr(term, "args", ())
        if (isinstance(term, Read) and term.leaf.node == core) or any(a in found for a in args):
            found.add(i)
    return found
