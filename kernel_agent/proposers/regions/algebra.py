"""Algebra over several calls: exact rewrites that see what a call reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from kernel_agent.proposers.regions.rule import Writer
from kernel_agent.proposers.regions.views import users
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import names

SUMS = "a sum over the outputs of a product is a product with the sums of its weights"
WORTH = 1 << 16  # weights from which their sums pay for a kernel of their own
ROWS = 4  # of the other operand: fewer read the weights no more often than their sums do


def reassociated(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The graph with sums over the outputs of products taken over their weights, and the rule where it held.

    sum_j (x w)_j = x sum_j w_j: the product of matrices becomes one read of each.
    """
    readers, by_name = users(graph, graph.leaves), {node.name: node for node in graph.nodes}
    specs = {name: leaf.spec for name, leaf in graph.leaves.items()}
    specs |= {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    once = {name for name, some in readers.items() if len(some) == 1} - set(graph.outputs)
    nodes, gone = list[Node](), set[str]()
    for node in graph.nodes:
        found = _Summed.of(node, by_name, specs, once)
        nodes += found.calls(node, specs) if found else [node]
        gone |= found.between if found else set()
    if not gone:
        return graph, ()
    return replace(graph, nodes=tuple(node for node in nodes if node.name not in gone)), (SUMS,)


@dataclass
class _Summed:
    """factor x the sums over the last dimension of x times weights, and of `plus`, each a vector and its factor.

    `between` are the calls from the product to before the sum. The weights' dimension `outs` is that of the outputs.
    """

    factor: float = 1.0
    plus: list[tuple[Any, float]] = field(default_factory=list)
    between: set[str] = field(default_factory=set)
    x: Any = None
    weights: Any = None
    outs: int = 0

    @staticmethod
    def of(node: Node, by_name: Mapping[str, Node], specs: Mapping[str, Spec], once: set[str]) -> _Summed | None:
        """What a sum or mean adds up, where that is a product with weights."""
        if names(node.op)[0] not in ("sum", "mean") or node.kwargs.get("dtype") or len(node.args) < 2:
            return None
        dims = [node.args[1]] if isinstance(node.args[1], int) else node.args[1]
        of = node.args[0]
        if not isinstance(of, Ref) or not dims or len(dims) != 1 or not node.outputs:
            return None
        shape = specs[of.node].shape
        if not shape or dims[0] % len(shape) != len(shape) - 1 or node.spec.dtype != "float32":
            return None
        found = _Summed(1.0 if names(node.op)[0] == "sum" else 1.0 / shape[-1])
        while isinstance(of, Ref) and of.node in once and of.node in by_name:
            found.between.add(of.node)
            call = by_name[of.node]
            if found._ends(call, specs):
                return found._turned(by_name, specs)
            of = found._passes(call, shape[-1], specs)
        return None

    def _passes(self, call: Node, width: int, specs: Mapping[str, Spec]) -> Any:
        """What a call reads that scales its argument by a number, or adds a vector; None of any other."""
        base, first, second = names(call.op)[0], *[*call.args, None, None][:2]
        if base not in ("mul", "div", "add", "sub") or call.kwargs or len(call.args) != 2 or not isinstance(first, Ref):
            return None
        if base in ("mul", "div"):
            if not isinstance(second, int | float) or (base == "div" and not second):
                return None
            self.factor *= second if base == "mul" else 1 / second
            return first
        if not isinstance(second, Ref) or specs[second.node].shape != (width,):
            return None
        if specs[first.node].shape != call.spec.shape:
            return None
        self.plus.append((second, self.factor if base == "add" else -self.factor))
        return first

    def _ends(self, call: Node, specs: Mapping[str, Spec]) -> bool:
        """Whether a call is a product with weights that is worth it, which is then the end of the way."""
        base = names(call.op)[0]
        if base not in ("linear", "mm", "matmul") or len(call.args) < 2:
            return False
        x, weights, bias = [*call.args, None][:3]
        shape = specs[weights.node].shape
        rows = prod(specs[x.node].shape[:-1])
        if len(shape) != 2 or prod(shape) < WORTH or rows < ROWS or specs[weights.node].dtype != "float32":
            return False
        self.x, self.weights, self.outs = x, weights, 0 if base == "linear" else 1
        if bias is not None:
            self.plus.append((bias, self.factor))
        return True

    def _turned(self, by_name: Mapping[str, Node], specs: Mapping[str, Spec]) -> _Summed:
        """The same with the weights as they lie in memory, where the product reads them transposed."""
        made = by_name.get(self.weights.node)
        if made is not None and names(made.op)[0] in ("t", "numpy_T") and len(specs[made.args[0].node].shape) == 2:
            self.weights, self.outs = made.args[0], 1 - self.outs
        return self

    def calls(self, node: Node, specs: Mapping[str, Spec]) -> list[Node]:
        """The calls in place of the sum."""
        w, shape = Writer(node, specs), specs[self.x.node].shape
        sums = w.call("sum.dim_IntList", self.weights, [self.outs], False, shape=(shape[-1],))
        terms = w.call("mul.Tensor", self.x, sums, shape=shape)
        out = w.call("sum.dim_IntList", terms, [-1], False, shape=shape[:-1])
        if self.factor != 1:
            out = w.call("mul.Tensor", out, self.factor, shape=shape[:-1])
        for vector, factor in self.plus:
            whole = w.call("sum.dim_IntList", vector, [0], False, shape=())
            scaled = w.call("mul.Tensor", whole, factor, shape=()) if factor != 1 else whole
            out = w.call("add.Tensor", out, scaled, shape=shape[:-1])
        w.call("view.default", out, list(node.spec.shape), shape=node.spec.shape, name=node.name)
        return w.calls
