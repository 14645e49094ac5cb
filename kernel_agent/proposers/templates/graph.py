"""The traced graph of a module, read from the server's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered

Shape = tuple[int, ...]
OF_GRAPHS = "higher_order."  # what an operator is called that takes a graph, such as that of a block under autocast
SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "complex64": 8}


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape (in elements) and dtype (torch's name without the prefix) of one tensor."""

    shape: Shape
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * SIZES.get(self.dtype, 1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that the kernel reads. `path` leads to it from the module; None is an argument of forward, or a result.

    `value` is that of a single number which forward makes itself, where the trace says it.
    """

    node: str
    spec: Spec
    path: str | None
    value: float | None = None

    @property
    def made(self) -> bool:
        """Whether forward makes it of Python numbers: no attribute of the module holds it."""
        return (self.path or "").startswith("lifted_tensor")

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.spec.shape)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of forward: a tensor leaf, or a plain value that the trace has baked in."""

    name: str
    leaf: Leaf | None
    value: object = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A mention of another node."""

    node: str


@dataclass(frozen=True, slots=True)
class Node:
    """One call of the trace, such as `aten.add.Tensor`."""

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Spec, ...]

    @property
    def spec(self) -> Spec:
        """What the call returns. Raises NotCovered where that is no tensor."""
        if not self.outputs:
            raise NotCovered(f"no template covers {self.op}, which returns no tensor.")
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Graph:
    """Arguments in call order, leaves by node name, calls in order, and the names of what is returned.

    The last arguments go by keyword: those in `keywords`.
    """

    arguments: tuple[Argument, ...]
    leaves: Mapping[str, Leaf]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    structure: str
    keywords: tuple[str, ...] = ()


def parse(graph: Mapping[str, Any]) -> Graph:
    """Read the server's JSON.

    Raises NotCovered where what goes in is no plain list of tensors and values, or a part is a graph of its own.
    """
    if graph.get("input_structure") == "mixed":
        raise NotCovered("templates take tensors and plain values, and this module takes containers of them.")
    if apart := next((entry["op"] for entry in graph["nodes"] if OF_GRAPHS in entry["op"]), None):
        raise NotCovered(f"a part of this module runs in a mode of its own, such as autocast: {apart.split('.')[-1]}.")
    arguments = tuple(_argument(entry) for entry in graph["inputs"])
    leaves = {argument.leaf.node: argument.leaf for argument in arguments if argument.leaf}
    for entry in graph["parameters"]:
        leaves[entry["node"]] = Leaf(entry["node"], _spec(entry), entry["name"], entry.get("value"))
    nodes = tuple(
        Node(
            name=entry["name"],
            op=entry["op"],
            args=tuple(_value(a) for a in entry["args"]),
            kwargs={key: _value(a) for key, a in entry["kwargs"].items()},
            outputs=tuple(_spec(o) for o in entry["outputs"]),
        )
        for entry in graph["nodes"]
    )
    structure = graph.get("output_structure", "tensor" if len(graph["outputs"]) == 1 else "tuple")
    return Graph(arguments, leaves, nodes, tuple(graph["outputs"]), structure, tuple(graph.get("keywords", ())))


def _argument(entry: Mapping[str, Any]) -> Argument:
    if "shape" in entry:
        return Argument(entry["name"], Leaf(entry["name"], _spec(entry), None))
    return Argument(entry["name"], None, _value(entry.get("value")))


def _spec(entry: Mapping[str, Any]) -> Spec:
    return Spec(tuple(entry["shape"]), entry["dtype"])


def _value(encoded: Any) -> Any:
    if isinstance(encoded, Mapping):
        if "node" in encoded:
            return Ref(encoded["node"])
        if "float" in encoded:
            return float(encoded["float"])
        return dict(encoded)
    if isinstance(encoded, Sequence) and not isinstance(encoded, str):
        return [_value(item) for item in encoded]
    return encoded
