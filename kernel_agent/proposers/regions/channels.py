"""Convolutions with channels last: their tensors lie as the tensor cores read them, and so does all that follows.

cuDNN's TF32 kernels read channels last. A convolution of tensors with channels first is one between two passes of
layout over its input and its result; with channels last, kernels of ours change the layout on their own way, and
between two convolutions nobody does. A tensor with channels last is written here as a dense one of the dimensions
(batch, places, channels), so that views and kernels know its layout by its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from kernel_agent.proposers.regions.canonical import whole_pool
from kernel_agent.proposers.regions.norms import follow, joined, standard
from kernel_agent.proposers.regions.on_cpu import pooling
from kernel_agent.proposers.regions.plan import size, specs
from kernel_agent.proposers.regions.rule import Writer, viewed
from kernel_agent.proposers.regions.views import is_view, renamed, users
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Shape, Spec
from kernel_agent.proposers.templates.lowering import DTYPES, SAME, mentions, names
from kernel_agent.proposers.templates.pointwise import POINTWISE

TITLE = "convolutions and what follows them have channels last"
RANKS = (4, 5)  # of a batch of planes or of spaces with channels
CONVOLUTIONS = {f"{kind}{d}d" for kind in ("conv", "conv_transpose") for d in (2, 3)}
POOLS = {f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_avg") for d in (2, 3)}
WIDE = 16  # channels of a convolution whose tensor cores are not left half empty by channels last
MANY = 1 << 15  # results that fill a large device where a block has 32 of them
STAGED = 128  # channels of rows that a block keeps in shared memory
CHAIN = 12  # pointwise calls at most that are computed twice rather than stored
TAPS = 8  # places of windows side by side that a kernel reads like so many tensors
SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
FOLDS = ("sum", "mean", "amax", "amin", "logsumexp")
HELD = 1 << 9  # places whose moments 16 threads take from their registers


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
    return groups == 1 or ("transpose" not in base and known[node.args[1].node].shape[1] == 1)


def convolutions(graph: Graph) -> list[Node]:
    """The convolutions that can have channels last."""
    known = specs(graph)
    return [node for node in graph.nodes if is_convolution(node, known)]


def layout_passes(nodes: Iterable[Node], known: Mapping[str, Spec]) -> int:
    """Bytes that cuDNN moves to change the layout before and behind those of the calls that have channels first."""
    turned_ = [node for node in nodes if is_convolution(node, known)]
    return sum(2 * size(spec) for node in turned_ for spec in (known[node.args[0].node], node.spec))


def channels_last(graph: Graph, bias: bool, fewest: int = 1) -> Graph:
    """The graph in which convolutions of so many channels at least, and what follows them, have channels last.

    `bias` takes the bias of a convolution out of the call. What returns, or what a call reads that has no form with
    channels last, is made with channels first by who makes it.
    """
    turner = _Turner(graph, bias, fewest, specs(graph))
    for node in graph.nodes:
        turner.add(node)
    return turner.done() if turner.last else graph


@dataclass
class _Turner:
    """Writes the graph call by call; `last` names for a tensor the one with channels last that shows the same."""

    graph: Graph
    bias: bool
    fewest: int
    known: dict[str, Spec]
    last: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Write a call, with channels last where what it reads has them and it has such a form."""
        rule, base = _rule(node), names(node.op)[0]
        w = Writer(node, self.known)
        if is_convolution(node, self.known) and self.known[node.args[0].node].shape[1] >= self.fewest:
            self._convolution(w)
        elif rule is None or not any(isinstance(a, Ref) and a.node in self.last for a in _tensors(node)):
            w.calls.append(node)
        elif not rule(self, w):
            w.calls = [node]
        if is_view(node) and (base == "dropout" or base in SAME) and mentions(node.args)[0] in self.last:
            self.last[node.name] = self.last[mentions(node.args)[0]]
        self.nodes += w.calls
        self.known.update({call.name: call.outputs[0] for call in w.calls if call.outputs})

    def finish(self, w: Writer, result: Ref, spec: Spec) -> bool:
        """The call's own name for a result with channels last."""
        self.last[w.node.name] = result.node
        w.call("permute.default", result, back(len(spec.shape)), shape=spec.shape, dtype=spec.dtype, name=w.node.name)
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

    def returns(self, name: str) -> bool:
        """Whether pointwise work at most stands between a tensor and those that the module returns."""
        stack, readers = [name], users(self.graph, ())
        while stack:
            name = stack.pop()
            following = [node for node in self.graph.nodes if node.name in readers.get(name, ())]
            if not all(names(node.op)[0] in (*POINTWISE, *SAME, "dropout") for node in following):
                return False
            stack += [node.name for node in following]
        return True

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
            ref = w.call("relu.default", shape=node.spec.shape, dtype=node.spec.dtype)
            w.calls[-1] = replace(node, name=ref.node, args=renamed(node.args, new))
            new[node.name] = ref.node
        return Ref(new[of.node])

    def _convolution(self, w: Writer) -> None:
        node, spec = w.node, w.node.spec
        x, weight, bias, *rest = [*node.args, None][: max(len(node.args), 3)]
        if x.node not in self.last:
            given = self.known[x.node]
            self.last[x.node] = w.call("channels_last.default", x, shape=turned(given.shape), dtype=given.dtype).node
        out = isinstance(bias, Ref) and self.bias
        args = (Ref(self.last[x.node]), weight, None if out else bias, *rest)
        op = f"{names(node.op)[0]}_last.default"
        result = w.call(op, *args, shape=turned(spec.shape), dtype=spec.dtype)
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
            if not is_view(node) and base not in (*POINTWISE, *SOFTMAX) and not base.startswith("channels_"):
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


def _is_turn(node: Node) -> bool:
    return node.op == "aten.permute.default" and list(node.args[1]) == back(len(node.spec.shape))


def _tensors(node: Node) -> list[Any]:
    return list(node.args[0]) if names(node.op)[0] == "cat" else list(node.args)


Turn = Callable[[_Turner, Writer], bool]


def _rule(node: Node) -> Turn | None:
    """How a call is written with channels last."""
    base = names(node.op)[0]
    if len(node.outputs) != 1 or node.outputs[0].dtype not in DTYPES or (node.kwargs and base not in POINTWISE):
        return None
    if base in POINTWISE and not mentions(node.kwargs) and len(mentions(node.args)) == sum(map(_is_ref, node.args)):
        return _pointwise if len(node.spec.shape) in RANKS else None
    return RULES.get(base)


def _is_ref(argument: Any) -> bool:
    return isinstance(argument, Ref)


def _pointwise(t: _Turner, w: Writer) -> bool:
    spec = w.node.spec
    args = tuple(t.of(w, a, len(spec.shape)) for a in w.node.args)
    result = w.call("relu.default", shape=turned(spec.shape), dtype=spec.dtype)
    w.calls[-1] = replace(w.node, name=result.node, args=args, outputs=w.calls[-1].outputs)
    return t.finish(w, result, spec)


def _softmax(t: _Turner, w: Writer) -> bool:
    x, dim, *rest = w.node.args
    rank, spec = len(w.node.spec.shape), w.node.spec
    if dim % rank == 1 and spec.shape[1] <= STAGED and t.returns(w.node.name):
        return False  # one kernel reads channels last and writes channels first
    at = order(rank).index(dim % rank)
    result = w.call(
        w.node.op.removeprefix("aten."), Ref(t.last[x.node]), at, *rest, shape=turned(spec.shape), dtype=spec.dtype
    )
    return t.finish(w, result, spec)


def _fold(t: _Turner, w: Writer) -> bool:
    x, dims, keep = [*w.node.args, None, None][:3]
    given, spec = t.known[x.node].shape, w.node.spec
    rank = len(given)
    folded = {d % rank for d in ([dims] if isinstance(dims, int) else dims or range(rank))}
    ordered = [d for d in order(rank) if keep or d not in folded]
    shape = tuple(1 if d in folded else given[d] for d in ordered)
    rest = (sorted(order(rank).index(d) for d in folded), bool(keep)) if dims is not None else ()
    name = w.node.name if ordered == sorted(ordered) else ""
    op, of = w.node.op.removeprefix("aten."), Ref(t.last[x.node])
    if folded == {*range(2, rank)} and names(w.node.op)[0] != "logsumexp":
        of, rest = _pieces(w, op, of, given, rest)
    result = w.call(op, of, *rest, shape=shape, dtype=spec.dtype, name=name)
    if keep:
        return t.finish(w, result, spec)
    if not name:
        places = [ordered.index(d) for d in sorted(ordered)]
        w.call("permute.default", result, places, shape=spec.shape, dtype=spec.dtype, name=w.node.name)
    return True


def _pieces(w: Writer, op: str, of: Ref, given: Shape, rest: tuple[Any, ...]) -> tuple[Ref, tuple[Any, ...]]:
    """What is left to fold over all places: where few results would leave the device idle, folds of pieces of them."""
    batch, channels, places = given[0], given[1], prod(given[2:])
    parts = _whole_lines(given[2:])
    if batch * channels >= MANY or parts == 1:
        return of, rest
    cut = (batch, parts, places // parts, channels)
    folded = w.call(op, viewed(w, of, cut), [2], False, shape=(batch, parts, channels))
    wide = (batch, parts, *(1,) * (len(given) - 3), channels)
    return viewed(w, folded, wide), rest


def _pool(t: _Turner, w: Writer) -> bool:
    node = w.node
    if whole := whole_pool(node, t.known):
        w.node = whole[0]
        return _fold(t, w)
    op, args, spec = f"{names(node.op)[0]}_last.default", node.args[1:], node.spec
    if (beside := pooling(node, t.known)) and prod(beside[0].args[1]) <= TAPS:
        op, args = f"{names(beside[0].op)[0]}_last.default", beside[0].args[1:]
    result = w.call(op, Ref(t.last[node.args[0].node]), *args, shape=turned(spec.shape), dtype=spec.dtype)
    return t.finish(w, result, spec)


def _cat(t: _Turner, w: Writer) -> bool:
    parts, dim = [*w.node.args, 0][:2]
    spec = w.node.spec
    if not all(part.node in t.last for part in parts):
        return False
    at = order(len(spec.shape)).index(dim % len(spec.shape))
    refs = [Ref(t.last[part.node]) for part in parts]
    return t.finish(w, w.call("cat.default", refs, at, shape=turned(spec.shape), dtype=spec.dtype), spec)


def _parts(places: int) -> int | None:
    """Into how many pieces of one length places are cut so that the registers of a block hold each; None if no way."""
    most = min(places, HELD)
    found = next((p for p in range(-(-places // most), places // 16 + 1) if places % p == 0), None)
    return 1 if places <= HELD else found


def _whole_lines(places: Shape) -> int:
    """Into how many pieces places are cut that end where a line, a plane or an equal part of one ends."""
    each = 4 * HELD
    ends = (prod(places[:d]) * n for d, size in enumerate(places) for n in range(1, size + 1) if size % n == 0)
    return next(parts for parts in ends if prod(places) // parts <= each)


def _batch_norm(t: _Turner, w: Writer) -> bool:
    x, weight, bias, mean, var, training, momentum, eps = w.node.args[:8]
    spec, shape = w.node.spec, turned(w.node.spec.shape)
    batch, channels, places = shape[0], shape[-1], prod(shape[1:-1])
    of, wide = Ref(t.last[x.node]), (channels,)
    if spec.dtype != "float32":
        return False
    if training:
        parts = _parts(places)
        if parts is None or momentum is None or batch * places < 2:
            return False
        cut = (batch, parts, places // parts, channels)
        mean, var = joined(w, viewed(w, of, cut), cut, [0, 1], 2)
        follow(w, w.node, mean, var, batch * places)
        of = t.again(w, of)
    return t.finish(w, standard(w, of, shape, (mean, var), wide, eps, (weight, bias)), spec)


def _group_norm(t: _Turner, w: Writer) -> bool:
    x, groups, weight, bias, eps = [*w.node.args, None, None, 1e-5][:5]
    return _normed(t, w, (x, weight, bias), groups, eps)


def _instance_norm(t: _Turner, w: Writer) -> bool:
    x, weight, bias, mean, var, by_input, _, eps = w.node.args[:8]
    if not by_input or isinstance(mean, Ref) or isinstance(var, Ref):
        return False
    return _normed(t, w, (x, weight, bias), w.node.spec.shape[1], eps)


def _normed(t: _Turner, w: Writer, of: tuple[Ref, Ref | None, Ref | None], groups: int, eps: float) -> bool:
    """A norm over the places and the channels of a group: moments of pieces of the places, joined, and a product."""
    shape, spec = turned(w.node.spec.shape), w.node.spec
    batch, channels, places = shape[0], shape[-1], prod(shape[1:-1])
    parts, each = _parts(places), channels // groups
    if spec.dtype != "float32" or parts is None:
        return False
    x, affine = Ref(t.last[of[0].node]), [viewed(w, a, (groups, each)) if isinstance(a, Ref) else None for a in of[1:]]
    cut, flat = (batch, parts, places // parts, groups, each), (batch, places, groups, each)
    mean, var = joined(w, viewed(w, x, cut), cut, [1, 3], 2)
    wide = (batch, 1, groups, 1)
    moments = viewed(w, mean, wide), viewed(w, var, wide)
    scaled = standard(w, viewed(w, t.again(w, x), flat), flat, moments, wide, eps, affine)
    return t.finish(w, viewed(w, scaled, shape), spec)


RULES: dict[str, Turn] = {
    **dict.fromkeys(SOFTMAX, _softmax),
    **dict.fromkeys(FOLDS, _fold),
    **dict.fromkeys(POOLS, _pool),
    "cat": _cat,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
}
