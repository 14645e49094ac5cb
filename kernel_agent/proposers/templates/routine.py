"""What one kernel computes, as all that is not a template sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_agent.proposers.templates.graph import Graph, Leaf
from kernel_agent.proposers.templates.lowering import mentions, names
from kernel_agent.proposers.templates.program import Output, Term


class Routine(Protocol):
    """The work of one kernel: row programs are one kind of it, each family of `families.py` is another."""

    @property
    def graph(self) -> Graph:
        """The calls that it stands for."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        ...

    @property
    def outputs(self) -> Sequence[Output]:
        """The tensors that are written, in the order of the graph's outputs."""
        ...

    @property
    def terms(self) -> Sequence[Term]:
        """Its pointwise operations."""
        ...

    @property
    def variety(self) -> str:
        """What kernels are called that are varied together."""
        ...

    @property
    def chains(self) -> tuple[int, int]:
        """How many results are worked on apart from each other, and of how many elements each is made in turn."""
        ...

    @property
    def spares(self) -> int:
        """What a kernel of ours saves beside traffic, in bytes of a copy."""
        ...

    @property
    def likeness(self) -> object:
        """Equal for routines that one kernel serves."""
        ...


def moved(routine: Routine) -> int:
    """Bytes that a kernel reads and writes, each once."""
    return sum(_read(leaf, routine.graph) for leaf in routine.leaves) + sum(out.spec.bytes for out in routine.outputs)


def _read(leaf: Leaf, graph: Graph) -> int:
    """Bytes of a tensor that are read: all of it, or what slices of it show where nothing else is read."""
    users = [node for node in graph.nodes if leaf.node in mentions([node.args, node.kwargs])]
    if not users or any(names(node.op)[0] != "slice" for node in users):
        return leaf.spec.bytes
    return min(leaf.spec.bytes, sum(node.spec.bytes for node in users))
