"""What rules that rewrite the graph are made of: one call becomes others, which a writer names after it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from kernel_agent.proposers.templates.graph import Node, Ref, Spec

LONG = 1 << 15  # elements of a row that the registers of one block hold
CHUNK = 1 << 14  # elements of a piece of a longer row
UNCACHED_ROW = 1 << 17  # elements of a row that leaves the last cache before it is read again: 132 blocks have one each
FEW = 512  # rows that leave a large device idle where each has one block


@dataclass
class Writer:
    """New calls in place of one; their names begin with its name, and none of them is `taken`."""

    node: Node
    taken: Container[str]
    calls: list[Node] = field(default_factory=list)

    def call(self, op: str, *args: Any, shape: Sequence[int], dtype: str = "float32", name: str = "") -> Ref:
        """Write one call, and give a mention of it."""
        used = {call.name for call in self.calls}
        free = (n for i in count(1) if (n := f"{self.node.name}_p{i}") not in used and n not in self.taken)
        name = name or next(free)
        self.calls.append(Node(name, f"aten.{op}", args, {}, (Spec(tuple(shape), dtype),)))
        return Ref(name)

    def repeat(self, node: Node, args: Sequence[Any], shape: Sequence[int]) -> Ref:
        """Write a call of the same operator as a node's, with its keywords, of other arguments and another shape."""
        ref = self.call(node.op.removeprefix("aten."), *args, shape=shape, dtype=node.spec.dtype)
        self.calls[-1] = replace(self.calls[-1], kwargs=node.kwargs)
        return ref


Rule = Callable[[Node, dict[str, Spec]], list[Node] | None]


def viewed(w: Writer, of: Any, shape: Sequence[int]) -> Ref:
    return w.call("view.default", of, list(shape), shape=shape)


def biased(w: Writer, bare: Ref, bias: Ref, known: Mapping[str, Spec]) -> list[Node]:
    """The calls so far, then the bias of each channel added to a result, by the name of the call they stand for."""
    shape, dtype = w.node.spec.shape, w.node.spec.dtype
    wide = (shape[1], *(1,) * (len(shape) - 2))
    column = w.call("view.default", bias, list(wide), shape=wide, dtype=known[bias.node].dtype)
    w.call("add.Tensor", bare, column, shape=shape, dtype=dtype, name=w.node.name)
    return w.calls


def pieces(length: int) -> int:
    """Into how many pieces of one length a row is cut so that a block's registers hold each."""
    if length <= LONG:
        return 1
    return next((p for p in range(-(-length // CHUNK), length // 512 + 1) if length % p == 0), 1)
