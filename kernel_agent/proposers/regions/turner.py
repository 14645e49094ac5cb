"""What writes a graph call by call with channels last: which tensors have them, and what a rule may ask of it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from kernel_agent.proposers.regions.rule import Writer
from kernel_agent.proposers.regions.views import is_view, renamed, users
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Shape, Spec
from kernel_agent.proposers.templates.lowering import DTYPES, SAME, mentions, names
from kernel_agent.proposers.templates.pointwise import POINTWISE

CONVOLUTIONS = {f"{kind}{d}d" for kind in ("conv", "conv_transpose") for d in (2, 3)}
CHAIN = 12  # pointwise calls at most that are computed twice rather than stored
NORMS = ("batch_norm", "group_norm", "instance_norm")


def order(rank: int) -> list[int]:
    """The dimensions of a tensor with channels first, in the order of one with channels last."""
    return [0, *range(2, rank), 1]


def back(rank: int) -> list[int]:
    """The dimensions of a tensor with channels last, in the order of one with channels first."""
    return [0, rank - 1, *range(1, rank - 1)]


def turned(shape: Shape) -> Shape:
    """A shape with channels last."""
    return tuple(shape[d] for d in order(len(shape)))


def is_convolution(node: Node, known: Mapping[str, Spec]) -> bool:
    """Whether a call is a convolution in two or three dimensions that cuDNN computes well with channels last.

    A convolution of several groups of several channels is slower so: `decide_layout_opt` of torch/_inductor/graph.py.
    """
    base, rank = names(node.op)[0], len(node.outputs[0].shape) if node.outputs else 0
    if base not in CONVOLUTIONS or node.kwargs or rank != int(base[-2]) + 2 or node.spec.dtype not in DTYPES:
        return False
    groups = node.args[6] if len(node.args) > 6 else 1
    return groups == 1 or ("transpose" not in base and is_by_channel(node, known))


def is_by_channel(node: Node, known: Mapping[str, Spec]) -> bool:
    """Whether each channel of a convolution's result comes of one channel."""
    return len(node.args) > 6 and node.args[6] > 1 and known[node.args[1].node].shape[1] == 1


Turn = Callable[["Turner", Writer], bool]
"""Writes a call with channels last; False where it has no such form."""


@dataclass
class Turner:
    """Writes the graph call by call; `last` names for a tensor the one with channels last that shows the same.

    `across` are the calls with channels first that read a tensor with channels last well as it is.
    """

    graph: Graph
    rule: Callable[[Node], Turn | None]
    bias: bool
    fewest: int
    spared: Container[str]
    known: dict[str, Spec]
    last: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    origin: dict[str, str] = field(default_factory=dict)
    across: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Write a call, with channels last where what it reads has them and it has such a form."""
        rule, base = self.rule(node), names(node.op)[0]
        w = Writer(node, self.known)
        if is_convolution(node, self.known) and self.known[node.args[0].node].shape[1] >= self.fewest:
            self._convolution(w)
        elif rule is None or not any(isinstance(a, Ref) and a.node in self.last for a in _tensors(node)):
            w.calls.append(node)
        elif base in NORMS and node.name in self.spared:
            w.calls.append(node)  # PyTorch's norms keep the layout
            last = w.call("permute.default", Ref(node.name), order(len(node.spec.shape)), shape=turned(node.spec.shape))
            self.last[node.name] = last.node
        elif not rule(self, w):
            w.calls = [node]
        elif base in NORMS:
            self.origin.update({call.name: node.name for call in w.calls[:-1]})
        if is_view(node) and (base == "dropout" or base in SAME) and mentions(node.args)[0] in self.last:
            self.last[node.name] = self.last[mentions(node.args)[0]]
        self.nodes += w.calls
        self.known.update({call.name: call.outputs[0] for call in w.calls if call.outputs})

    def finish(self, w: Writer, result: Ref, spec: Spec) -> bool:
        """The call's own name for a result with channels last."""
        self.last[w.node.name] = result.node
        how = ("view.default", list(spec.shape)) if _is_one_order(spec) else ("permute.default", back(len(spec.shape)))
        w.call(how[0], result, how[1], shape=spec.shape, dtype=spec.dtype, name=w.node.name)
        return True

    def of(self, w: Writer, argument: Any, rank: int) -> Any:
        """An argument as it is beside tensors with channels last of so many dimensions."""
        if not isinstance(argument, Ref):
            return argument
        if argument.node in self.last and len(self.known[argument.node].shape) == rank:
            return Ref(self.last[argument.node])
        spec = self.known[argument.node]
        if not spec.shape or (prod(spec.shape) == 1 and len(spec.shape) < rank):
            return argument
        whole = (*(1,) * (rank - len(spec.shape)), *spec.shape)
        if len(spec.shape) < rank:
            argument = w.call("view.default", argument, list(whole), shape=whole, dtype=spec.dtype)
        return w.call("permute.default", argument, order(rank), shape=turned(whole), dtype=spec.dtype)

    @cached_property
    def readers(self) -> dict[str, list[Node]]:
        """Who reads each tensor in the graph as it was."""
        made = {node.name: node for node in self.graph.nodes}
        return {name: [made[reader] for reader in found] for name, found in users(self.graph, ()).items()}

    def returns(self, name: str) -> bool:
        """Whether pointwise work at most stands between a tensor and those that the module returns."""
        stack, seen = [name], set[str]()
        while stack:
            following = self.readers.get(stack.pop(), [])
            if not all(names(node.op)[0] in (*POINTWISE, *SAME, "dropout") for node in following):
                return False
            stack += [node.name for node in following if node.name not in seen]
            seen |= {node.name for node in following}
        return True

    def _adds(self, node: Node) -> bool:
        """Whether a kernel of ours follows a convolution, which adds its bias on its way."""
        following = self.readers.get(node.name, [])
        apart = (
            names(one.op)[0] == "cat" or is_convolution(one, self.known) or not self.rule(one) for one in following
        )
        return self.bias and not (following and all(apart))

    def again(self, w: Writer, of: Ref) -> Ref:
        """The same tensor computed once more, where that reads no more than the tensor itself.

        A norm's statistics and its product read a short chain behind a convolution in two kernels; neither stores it.
        """
        made = {node.name: node for node in self.nodes}
        chain, stack, whole = set[str](), [of.node], set[str]()
        while stack:
            name = stack.pop()
            node = made.get(name)
            if node is not None and names(node.op)[0] in POINTWISE and node.spec.shape == self.known[of.node].shape:
                chain.add(name)
                stack += mentions(node.args)
            elif self.known[name].shape == self.known[of.node].shape:
                whole.add(name)
        if not chain or len(chain) > CHAIN or len(whole) != 1:
            return of
        new = dict[str, str]()
        for node in (node for node in self.nodes if node.name in chain):
            new[node.name] = w.repeat(node, renamed(node.args, new), node.spec.shape).node
        return Ref(new[of.node])

    def _convolution(self, w: Writer) -> None:
        node, spec = w.node, w.node.spec
        x, weight, bias, *rest = [*node.args, None][: max(len(node.args), 3)]
        if x.node not in self.last:
            given = self.known[x.node]
            shape = turned(given.shape)
            how = ("view.default", x, list(shape)) if _is_one_order(given) else ("channels_last.default", x)
            self.last[x.node] = w.call(*how, shape=shape, dtype=given.dtype).node
        out = isinstance(bias, Ref) and self._adds(node)
        args = (Ref(self.last[x.node]), weight, None if out else bias, *rest)
        base = names(node.op)[0]
        op = f"{base.replace('conv', 'depthwise') if is_by_channel(node, self.known) else base}_last.default"
        name = f"{node.name}_last" if f"{node.name}_last" not in self.known else ""
        result = w.call(op, *args, shape=turned(spec.shape), dtype=spec.dtype, name=name)
        if out:
            result = w.call("add.Tensor", result, bias, shape=turned(spec.shape), dtype=spec.dtype)
        self.finish(w, result, spec)

    def done(self) -> Graph:
        """The whole graph: what is returned, or read by a call of PyTorch, is a tensor with channels first."""
        graph = replace(self.graph, nodes=tuple(self.nodes))
        first = {node.name for node in self.nodes if node.name in self.last}
        wanted = {*graph.outputs}
        for node in self.nodes:
            base = names(node.op)[0]
            any_layout = base in (*POINTWISE, "channels_last", "channels_first") or is_view(node)
            any_layout |= node.name in self.across or (node.name in self.spared and node.name in self.last)
            if not any_layout:
                wanted |= {*mentions([node.args, node.kwargs])}
        views = {node.name: mentions(node.args)[:1] for node in self.nodes if is_view(node) and node.name not in first}
        stack, made = [*wanted], set[str]()
        while stack:
            name = stack.pop()
            made |= {name} & first
            stack += [] if name in first else views.get(name, [])
        nodes = [
            replace(n, op="aten.channels_first.default", args=n.args[:1]) if n.name in made and _is_turn(n) else n
            for n in self.nodes
        ]
        return replace(graph, nodes=tuple(nodes))


def _is_one_order(spec: Spec) -> bool:
    """Whether elements follow each other in the same order with channels first and last."""
    return spec.shape[1] == 1 or prod(spec.shape[2:]) == 1


def _is_turn(node: Node) -> bool:
    return node.op == "aten.permute.default" and list(node.args[1]) == back(len(node.spec.shape))


def _tensors(node: Node) -> list[Any]:
    return list(node.args[0]) if names(node.op)[0] == "cat" else list(node.args)
