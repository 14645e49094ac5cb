"""How PyTorch's calls multiply matrices: their operands, and the labels of dimensions as in an einsum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import names

Specs = Mapping[str, Spec]
Rest = Callable[[Ref], Node]


@dataclass(frozen=True, slots=True)
class Form:
    """How a call multiplies: its two operands, the labels of their dimensions and of the result's, and the call that
    makes its result of the sums, where that is more than they."""

    a: Ref
    b: Ref
    labels: tuple[Sequence[str], Sequence[str], Sequence[str]]
    rest: Rest | None = None


def is_product(node: Node) -> bool:
    """Whether a call multiplies matrices."""
    return names(node.op)[0] in FORMS


def form_of(node: Node, graph: Graph, dtypes: Sequence[str] = ("float32",)) -> Form:
    """How a call multiplies. Raises NotCovered where it doesn't, or no template covers its arguments."""
    specs = {name: leaf.spec for name, leaf in graph.leaves.items()}
    form = FORMS[names(node.op)[0]](node, specs | {n.name: n.outputs[0] for n in graph.nodes if n.outputs})
    if form is None or node.spec.dtype not in dtypes:
        raise NotCovered(f"no template covers {node.op} with these arguments.")
    return form


def _matrices(a: Any, b: Any, specs: Specs, rest: Rest | None = None) -> Form | None:
    """Two matrices, or stacks of them whose leading dimensions are broadcast."""
    first, second = len(specs[a.node].shape), len(specs[b.node].shape)
    if min(first, second) < 2:
        return None
    stack = [f"stack{i}" for i in range(max(first, second) - 2)]
    labels = (
        [*stack[len(stack) - first + 2 :], "m", "k"],
        [*stack[len(stack) - second + 2 :], "k", "n"],
        [*stack, "m", "n"],
    )
    return Form(a, b, labels, rest)


def _product(node: Node, specs: Specs) -> Form | None:
    return _matrices(node.args[0], node.args[1], specs)


def _linear(node: Node, specs: Specs) -> Form | None:
    x, weight, bias = [*node.args, None][:3]
    bias = node.kwargs.get("bias", bias)
    stack = [f"m{i}" for i in range(len(specs[x.node].shape) - 1)]
    if not stack or len(specs[weight.node].shape) != 2:
        return None
    rest = None if bias is None else lambda sums: replace(node, op="aten.add.Tensor", args=(sums, bias), kwargs={})
    return Form(x, weight, ([*stack, "k"], ["n", "k"], [*stack, "n"]), rest)


def _added(node: Node, specs: Specs) -> Form | None:
    """beta times the first argument, plus alpha times the product of the others."""
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")) or len(node.args) > 3:
        return None
    plus, a, b = node.args
    return _matrices(a, b, specs, lambda sums: replace(node, op="aten.add.Tensor", args=(sums, plus), kwargs={}))


def _einsum(node: Node, specs: Specs) -> Form | None:
    equation, operands = str(node.args[0]).replace(" ", ""), node.args[1]
    if len(operands) != 2 or "->" not in equation or "." in equation:
        return None
    sides, out = equation.split("->")
    first, second = sides.split(",")
    if any(len(set(side)) != len(side) for side in (first, second, out)):
        return None
    return Form(operands[0], operands[1], (first, second, out))


FORMS: dict[str, Callable[[Node, Specs], Form | None]] = {
    **dict.fromkeys(("mm", "bmm", "matmul"), _product),
    **dict.fromkeys(("addmm", "baddbmm"), _added),
    "linear": _linear,
    "einsum": _einsum,
}
