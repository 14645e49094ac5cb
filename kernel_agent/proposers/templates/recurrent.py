"""An LSTM or GRU as one kernel: all of its layers, directions and steps, by recurrent/level_01 of the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.program import Output, Term

RECURRENT = ("aten.lstm.input", "aten.gru.input")
RESULTS = ("output", "hidden", "cell")  # what a call gives, in order; a GRU has no cell


@dataclass(frozen=True)
class RecurrentShape:
    """`steps` of `batch` rows of `given` numbers, through `layers` of `hidden` units in one or two directions."""

    lstm: bool
    batch: int
    steps: int
    given: int
    hidden: int
    layers: int
    directions: int
    batch_first: bool

    @property
    def gates(self) -> int:
        """Rows of both matrices for each unit."""
        return 4 if self.lstm else 3

    @property
    def width(self) -> int:
        """Floats of a row's state in memory: whole units of 16 bytes."""
        return -(-self.hidden // 4) * 4

    @property
    def history(self) -> int:
        """Floats of all states of all layers."""
        return self.layers * self.directions * self.steps * self.batch * self.width

    @property
    def operations(self) -> float:
        """Multiplications and additions of the matrices."""
        above = (self.layers - 1) * self.directions * self.hidden
        columns = self.given + above + self.layers * self.hidden
        return 2.0 * self.batch * self.steps * self.directions * self.gates * self.hidden * columns


@dataclass(frozen=True)
class Recurrent:
    """A call and those of its results that are read: `wanted` by their places in RESULTS.

    `initial` are the states before the first step, None where they are zeros; `weights` those of each layer and
    direction, two matrices and maybe two biases. `spares` is what the time saved is worth, in bytes of a copy.
    """

    shape: RecurrentShape
    x: Leaf
    initial: tuple[Leaf | None, ...]
    weights: tuple[tuple[Leaf, ...], ...]
    wanted: tuple[int, ...]
    outputs: tuple[Output, ...]
    graph: Graph
    spares: int = 0

    variety = "recurrent"
    terms: tuple[Term, ...] = ()

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        known = (self.x, *self.initial, *(leaf for some in self.weights for leaf in some))
        read = {leaf.node for leaf in known if leaf is not None}
        return tuple(leaf for name, leaf in self.graph.leaves.items() if name in read)

    @property
    def chains(self) -> tuple[int, int]:
        """How many states are worked on apart from each other, and of how many steps each is made."""
        of = self.shape
        return of.batch * of.hidden * of.directions, of.steps * of.layers

    @property
    def likeness(self) -> object:
        """Equal for calls that one kernel serves: all but what the tensors are called."""
        order = [leaf.node for leaf in self.leaves]
        reads = [None if leaf is None else order.index(leaf.node) for leaf in (self.x, *self.initial)]
        weights = tuple(tuple(order.index(leaf.node) for leaf in some) for some in self.weights)
        return self.shape, tuple(reads), weights, self.wanted


def is_recurrent(node: Node) -> bool:
    """Whether a call is a recurrent network over a tensor of all steps."""
    return node.op in RECURRENT


def is_item(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a call names one of the tensors that a recurrent network gives."""
    of = node.args[0] if node.op == "_operator.getitem" else None
    return isinstance(of, Ref) and of.node in nodes and is_recurrent(nodes[of.node])


def recurrent_of(graph: Graph) -> Recurrent:
    """The graph as one recurrent network. Raises NotCovered where it is more, or other, than that."""
    [node, *others] = [node for node in graph.nodes if is_recurrent(node)]
    items = {n.name: n for n in graph.nodes if is_item(n, {node.name: node})}
    zeros = {n.name for n in graph.nodes if names(n.op)[0] in ("zeros", "zeros_like")}
    if others or any(n is not node and n.name not in items and n.name not in zeros for n in graph.nodes):
        raise NotCovered("a recurrent network's kernel computes nothing else.")
    if not set(graph.outputs) <= set(items):
        raise NotCovered("no template covers how the results of this recurrent network are read.")
    call = _Call.of(node)
    wanted = tuple(items[name].args[1] for name in graph.outputs)
    return Recurrent(
        shape=call.shape(graph),
        x=_leaf(graph, call.x),
        initial=tuple(None if one.node in zeros else _leaf(graph, one) for one in call.initial),
        weights=tuple(tuple(_leaf(graph, one) for one in some) for some in call.weights),
        wanted=wanted,
        outputs=tuple(Output(n, items[name].spec, True) for n, name in enumerate(graph.outputs)),
        graph=graph,
    )


def _leaf(graph: Graph, of: Ref) -> Leaf:
    leaf = graph.leaves.get(of.node)
    if leaf is None or leaf.made:
        raise NotCovered("a recurrent network's kernel reads tensors as they lie in memory, and here one is made.")
    if leaf.spec.dtype != "float32":
        raise NotCovered("templates compute recurrent networks of float32.")
    return leaf


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a call by name."""

    node: Node
    x: Ref
    initial: tuple[Ref, ...]
    weights: tuple[tuple[Ref, ...], ...]
    layers: int
    directions: int
    batch_first: bool

    @staticmethod
    def of(node: Node) -> _Call:
        if node.kwargs or len(node.args) != 9:
            raise NotCovered(f"no template covers {node.op} with these arguments.")
        x, states, parameters, biased, layers, dropout, training, both, batch_first = node.args
        initial = states if isinstance(states, list) else [states]
        if dropout and training and layers > 1:
            raise NotCovered(f"no template covers {node.op} that draws random numbers: call .eval().")
        each, count = 4 if biased else 2, layers * (1 + both)
        if len(parameters) != each * count:
            raise NotCovered("no template covers a recurrent network with projections.")
        if not all(isinstance(one, Ref) for one in (x, *initial, *parameters)):
            raise NotCovered(f"no template covers {node.op} with these arguments.")
        return _Call(node, x, tuple(initial), _grouped(parameters, each), layers, 1 + both, batch_first)

    def shape(self, graph: Graph) -> RecurrentShape:
        """Its sizes. Raises NotCovered where there is no batch, or nothing to compute."""
        spec = _leaf(graph, self.x).spec
        if len(spec.shape) != 3:
            raise NotCovered("no template covers a recurrent network of an input without a batch.")
        batch, steps = spec.shape[:2] if self.batch_first else spec.shape[1::-1]
        hidden = _hidden(_leaf(graph, self.weights[0][1]).spec)
        if 0 in spec.shape or not hidden:
            raise NotCovered("the recurrent network's tensors are empty for these inputs.")
        lstm = self.node.op == RECURRENT[0]
        given = (batch, steps, spec.shape[2], hidden)
        return RecurrentShape(lstm, *given, self.layers, self.directions, bool(self.batch_first))


def _hidden(spec: Spec) -> int:
    return spec.shape[1]


def _grouped(parameters: Sequence[Any], each: int) -> tuple[tuple[Ref, ...], ...]:
    return tuple(tuple(parameters[n : n + each]) for n in range(0, len(parameters), each))
