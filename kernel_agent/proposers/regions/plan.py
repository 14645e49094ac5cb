"""The plan of a module: what kernels of ours cover, what stays a call of PyTorch, in which order, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernel_agent.proposers.regions.rungs import is_rung
from kernel_agent.proposers.templates.graph import Graph, Node, Spec
from kernel_agent.proposers.templates.lowering import mentions
from kernel_agent.proposers.templates.routine import Routine, moved


@dataclass(frozen=True)
class Kernel:
    """A region that one kernel of ours covers: the calls that it stands for, and its program.

    The program's leaves are what flows in and its graph's outputs what flows out, both by the plan's node names.
    """

    nodes: tuple[str, ...]
    program: Routine

    @property
    def reads(self) -> tuple[str, ...]:
        """Nodes and leaves that it reads, in the order of its arguments."""
        return tuple(leaf.node for leaf in self.program.leaves)

    @property
    def writes(self) -> tuple[str, ...]:
        """Nodes whose tensors it writes, in the order of its outputs."""
        return self.program.graph.outputs

    @property
    def moved(self) -> int:
        """Bytes that it reads and writes."""
        return moved(self.program)


Step = Kernel | Node
ROOM = "aten.empty.memory_format"  # makes room for what slices are written into
COPY = "aten.copy_into.default"  # into a tensor, along a dimension, from one place to another, of the last argument


@dataclass(frozen=True, slots=True)
class Slice:
    """A tensor that lies in another: along dimension `dim`, from `start` to before `end`."""

    whole: str
    dim: int
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The steps of `forward` in order: kernels of ours and calls of PyTorch, over the names of the rewritten graph.

    `reasons` says of each computing call that stayed PyTorch what stood in the way; `rules` names what was rewritten;
    `slices` says of tensors that lie in others where they do.
    """

    graph: Graph
    steps: tuple[Step, ...]
    reasons: Mapping[str, str]
    rules: tuple[str, ...] = ()
    slices: Mapping[str, Slice] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(step for step in self.steps if isinstance(step, Kernel))

    @cached_property
    def rungs(self) -> tuple[Node, ...]:
        """The calls that a kernel of the corpus stands for as they are."""
        return tuple(step for step in self.steps if isinstance(step, Node) and is_rung(step))

    @property
    def written(self) -> int:
        """How many kernels of ours it launches."""
        return len(self.kernels) + len(self.rungs)

    @cached_property
    def specs(self) -> dict[str, Spec]:
        """Shape and dtype of every tensor by the name of its node or leaf."""
        return specs(self.graph)

    def eager_bytes(self, nodes: tuple[str, ...]) -> int:
        """Bytes that these calls read and write where each of them is a kernel of its own."""
        return sum(traffic(self.node(name), self.specs) for name in nodes)

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.graph.nodes}

    def node(self, name: str) -> Node:
        """The call of this name."""
        return self._by_name[name]


def specs(graph: Graph) -> dict[str, Spec]:
    """Shape and dtype of every tensor by the name of its node or leaf."""
    found = {name: leaf.spec for name, leaf in graph.leaves.items()}
    return found | {node.name: node.outputs[0] for node in graph.nodes if node.outputs}


def traffic(node: Node, known: Mapping[str, Spec]) -> int:
    """Bytes that a call reads and writes by itself."""
    if node.op in (ROOM, COPY):
        return 2 * node.spec.bytes if node.op == COPY else 0
    reads = dict.fromkeys(mentions([node.args, node.kwargs]))
    return sum(known[name].bytes for name in reads if name in known) + sum(spec.bytes for spec in node.outputs)
