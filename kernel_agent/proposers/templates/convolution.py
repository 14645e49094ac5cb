"""A convolution and what follows it element by element: one kernel computes both from a copy of its input.

Tensors have channels first; one and two dimensions are three whose first have one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import SIZES, Graph, Leaf, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import mentions, names
from kernel_agent.proposers.templates.program import Output, Program, Read, Term, nameless
from kernel_agent.proposers.templates.strides import Slab, split
from kernel_agent.proposers.templates.tails import tail_over
from kernel_agent.proposers.templates.taps import Places, Schedule, Window

CONVOLUTIONS = {f"{kind}{d}d" for kind in ("conv", "conv_transpose") for d in (1, 2, 3)}


@dataclass(frozen=True)
class ConvolutionShape:
    """`images` convolutions of `given` channels and places to `made` channels and places.

    Weights are (made, given, taps), or (given, made, taps) where the schedule is `turned`.
    """

    images: int
    given: tuple[int, Places]
    made: tuple[int, Places]
    schedule: Schedule

    @property
    def taps(self) -> int:
        """Taps of the whole window."""
        return prod(window.taps for window in self.schedule.windows)

    @property
    def points(self) -> int:
        """Places of a channel of the result."""
        return prod(self.made[1])

    @property
    def image(self) -> int:
        """Elements of an image of the result."""
        return self.made[0] * self.points

    @property
    def given_bytes(self) -> int:
        """Bytes of the input."""
        return self.images * self.given[0] * prod(self.given[1]) * SIZES["float32"]

    @property
    def operations(self) -> float:
        """Multiplications and additions, those with the padding's zeros among them."""
        places = prod(self.given[1]) if self.schedule.turned else self.points
        return 2.0 * self.images * self.made[0] * self.given[0] * places * self.taps


@dataclass(frozen=True)
class Convolution:
    """A convolution of `x` by `weight`, and a tail: pointwise terms over it, channels first.

    The tail reads the sums as a leaf called `value`; `lies` says where in `x` the input does, if not all of it is the
    input. `arithmetics` are the ways to compute them that are admissible,
    the most promising first; `spares` is what the time that they save is worth, in bytes of a copy.
    """

    shape: ConvolutionShape
    x: Leaf
    weight: Leaf
    tail: Program
    value: str
    graph: Graph
    arithmetics: tuple[str, ...] = ()
    spares: int = 0
    lies: Slab | None = None

    variety = "convolution"

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        read = {self.x.node, self.weight.node, *(leaf.node for leaf in self.tail.leaves)}
        return tuple(leaf for name, leaf in self.graph.leaves.items() if name in read)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.tail.outputs

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.tail.terms

    @property
    def chains(self) -> tuple[int, int]:
        """How many results are worked on apart from each other, and of how many terms each is made."""
        of = self.shape
        return of.images * of.made[0] * of.points, of.given[0] * of.taps

    @property
    def likeness(self) -> object:
        """Equal for convolutions that one kernel serves: all but what the tensors are called."""
        order = [leaf.node for leaf in self.leaves]
        reads = order.index(self.x.node), order.index(self.weight.node)
        sums = self.tail.graph.leaves[self.value]
        return self.shape, reads, nameless(self.terms, [*self.leaves, sums]), self.outputs, self.lies


def is_convolution(node: Node) -> bool:
    """Whether a call is a convolution of tensors with channels first."""
    return names(node.op)[0] in CONVOLUTIONS


def convolution_of(graph: Graph) -> Convolution:
    """The graph as one convolution with a tail. Raises NotCovered where it is more, or other, than that."""
    found = [node for node in graph.nodes if is_convolution(node)]
    if len(found) != 1:
        raise NotCovered(f"one kernel computes one convolution, and here are {len(found)}.")
    node = found[0]
    call = _Call.of(node)
    x, weight = (graph.leaves.get(one.node) for one in (call.x, call.weight))
    if x is None or weight is None:
        raise NotCovered("a convolution's kernel reads tensors as they lie in memory, and here one is computed first.")
    if {x.spec.dtype, weight.spec.dtype, node.spec.dtype} != {"float32"} or x.made or weight.made:
        raise NotCovered("templates compute convolutions of float32.")
    rank = len(x.spec.shape) - 2
    if rank != int(names(node.op)[0][-2]):
        raise NotCovered("no template covers a convolution of an input without a batch.")
    schedule = Schedule(call.windows(weight.spec.shape[2:]), call.turned)
    value, tail = _tail(graph, node, call.bias)
    shape = ConvolutionShape(
        images=x.spec.shape[0],
        given=(x.spec.shape[1], _three(x.spec.shape[2:], 1)),
        made=(node.spec.shape[1], _three(node.spec.shape[2:], 1)),
        schedule=schedule,
    )
    reads = (term for term in tail.terms if isinstance(term, Read))
    if any(located(term, shape) is None for term in reads):
        raise NotCovered("no template covers how a tensor is broadcast behind this convolution.")
    return Convolution(shape, x, weight, tail, value, graph)


def located(term: Read, of: ConvolutionShape) -> tuple[Any, Any, Any] | None:
    """Where a term is found by image, channel and place; None where these do not say it."""
    halves = split(term.pattern, of.points)
    both = split(halves[0], of.made[0]) if halves else None
    return (*both, halves[1]) if halves and both else None


def _tail(graph: Graph, node: Node, bias: Ref | None) -> tuple[str, Program]:
    """The sums' name in the tail, and the tail, which adds the convolution's own bias."""
    if bias is None:
        return node.name, tail_over(graph, Leaf(node.name, node.spec, None), [n for n in graph.nodes if n is not node])
    sums, column = Leaf(f"{node.name}_sums", node.spec, None), f"{node.name}_column"
    wide = (node.spec.shape[1], *(1,) * (len(node.spec.shape) - 2))
    added = [
        Node(column, "aten.view.default", (bias, list(wide)), {}, (Spec(wide, "float32"),)),
        replace(node, op="aten.add.Tensor", args=(Ref(sums.node), Ref(column)), kwargs={}),
    ]
    return sums.node, tail_over(graph, sums, [n for one in graph.nodes for n in (added if one is node else [one])])


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a call by name."""

    x: Ref
    weight: Ref
    bias: Ref | None
    turned: bool
    strides: Sequence[int]
    paddings: Sequence[int] | str
    dilations: Sequence[int]

    @staticmethod
    def of(node: Node) -> _Call:
        turned = "transpose" in node.op
        order = ["x", "weight", "bias", "stride", "padding"]
        order += ["output_padding", "groups", "dilation"] if turned else ["dilation", "groups"]
        given: Mapping[str, Any] = {**dict(zip(order, node.args, strict=False)), **node.kwargs}
        padding = given.get("padding", 0)
        if given.get("groups", 1) != 1:
            raise NotCovered("no template covers a convolution of several groups.")
        if not isinstance(given["x"], Ref) or len(mentions([given["x"], given["weight"]])) != 2:
            raise NotCovered("no template covers a convolution with these arguments.")
        return _Call(
            given["x"],
            given["weight"],
            given.get("bias"),
            turned,
            _listed(given.get("stride", 1)),
            padding if isinstance(padding, str) else _listed(padding),
            _listed(given.get("dilation", 1)),
        )

    def windows(self, taps: Sequence[int]) -> tuple[Window, Window, Window]:
        dilations = _wide(self.dilations, len(taps))
        paddings = self.paddings
        if isinstance(paddings, str):  # of the zeros around a result of the input's size, fewer come before it
            around = (dilation * (count - 1) for dilation, count in zip(dilations, taps, strict=True))
            paddings = [zeros // 2 if paddings == "same" else 0 for zeros in around]
        rows = zip(
            _three(taps, 1),
            _three(_wide(self.strides, len(taps)), 1),
            _three(_wide(paddings, len(taps)), 0),
            _three(dilations, 1),
            strict=True,
        )
        depth, height, width = (Window(*row) for row in rows)
        return depth, height, width


def _listed(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _wide(values: Sequence[int], count: int) -> Sequence[int]:
    return values if len(values) == count else [values[0]] * count


def _three(values: Sequence[int], fill: int) -> Places:
    depth, height, width = [fill] * (3 - len(values)) + list(values)
    return depth, height, width
