"""The graph rewritten before it is cut: each rule keeps what the module computes, and says why it may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from kernel_agent.proposers.regions.canonical import (
    cross_entropy,
    depthwise,
    long_softmax,
    triplet,
    whole_pool,
    wide_attention,
)
from kernel_agent.proposers.regions.channels import TITLE as CHANNELS_LAST
from kernel_agent.proposers.regions.channels import WIDE, channels_last, convolutions
from kernel_agent.proposers.regions.norms import batch_norm, instance_norm, long_norm
from kernel_agent.proposers.regions.on_cpu import pooling, transposed_2d, transposed_3d, winograd
from kernel_agent.proposers.regions.plan import specs
from kernel_agent.proposers.regions.rule import FEW, LONG, Rule, Writer, biased, pieces, viewed
from kernel_agent.proposers.regions.scans import long_scan, spelled
from kernel_agent.proposers.regions.views import CONSTANTS, COPIES, is_in_place, renamed, storages, users
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import DTYPES, IN_PLACE, mentions, names

LAYOUTS = {"last": 1, "wide": WIDE}  # the kinds that give convolutions of so many channels channels last
BIAS = "a convolution's bias is added by the kernel behind it"
CONVOLUTIONS = {f"{kind}{d}d" for kind in ("conv", "conv_transpose") for d in (1, 2, 3)}


def functional(graph: Graph) -> Graph:
    """Calls that change a tensor in place give a new one instead, where no other name of its memory is read later."""
    nodes, now = list[Node](), dict[str, str]()
    memory = storages(graph)
    position = {node.name: i for i, node in enumerate(graph.nodes)}
    readers = users(graph, graph.leaves)
    for i, node in enumerate(graph.nodes):
        changed = replace(node, args=renamed(node.args, now), kwargs=renamed(node.kwargs, now))
        base, overload = names(node.op)
        if (base in IN_PLACE or base == "dropout_") and node.args and isinstance(node.args[0], Ref):
            target = node.args[0].node
            known = (n for n, m in memory.items() if m == memory[target] and position.get(n, -1) < i)
            others = [n for n in known if n != target]
            seen = any(position[user] > i for other in others for user in readers.get(other, ()))
            if memory[target] not in graph.leaves and not seen and not set(others) & set(graph.outputs):
                changed = replace(changed, op=f"aten.{base[:-1]}.{overload}")
                now[target] = node.name
        nodes.append(changed)
    outputs = tuple(now.get(name, name) for name in graph.outputs)
    return _copied(replace(graph, nodes=tuple(nodes), outputs=outputs))


def _copied(graph: Graph) -> Graph:
    """A copy is no view of what it copies where either of them changes later."""
    memory, position = storages(graph), {node.name: i for i, node in enumerate(graph.nodes)}
    changes = [(position[node.name], where) for node, where in effects(graph)]
    nodes = list[Node]()
    for i, node in enumerate(graph.nodes):
        if names(node.op)[0] in COPIES:
            both = node.name, memory[node.args[0].node]
            if any(at > i and where in both for at, where in changes):
                node = replace(node, op="aten._to_copy.default")
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _expanded(graph: Graph) -> Graph:
    """Tensors that are broadcast together are each expanded by itself."""
    together = {node.name: node for node in graph.nodes if node.op == "aten.broadcast_tensors.default"}
    nodes = list[Node]()
    for node in graph.nodes:
        of = together.get(node.args[0].node) if node.op == "_operator.getitem" else None
        if of is not None:
            args = (of.args[0][node.args[1]], list(node.spec.shape))
            node = replace(node, op="aten.expand.default", args=args)
        nodes.append(node)
    return replace(graph, nodes=tuple(node for node in nodes if node.name not in together)) if together else graph


def _without_ones(graph: Graph) -> Graph:
    """A product with the number one, or a division by it, is its argument, where nobody can tell the two tensors apart:
    what is returned lies in no memory of the caller's or of another result, and neither is changed in place."""
    known, memory, ends = specs(graph), storages(graph), set(graph.outputs)
    changed = {memory[node.name] for node in graph.nodes if is_in_place(node)}
    nodes, now = list[Node](), dict[str, str]()
    for node in graph.nodes:
        node = replace(node, args=renamed(node.args, now), kwargs=renamed(node.kwargs, now))
        of = node.args[0].node if node.args and isinstance(node.args[0], Ref) else ""
        by = node.args[1] if node.op in ("aten.mul.Tensor", "aten.div.Tensor") else None
        same = isinstance(by, int | float) and by == 1 and known.get(of) == node.spec
        others = {memory[name] for name in ends if name != node.name} | {*graph.leaves}
        seen = node.name in ends and memory.get(of) in others
        if same and not seen and not {memory.get(of), node.name} & changed:
            now[node.name] = of
        else:
            nodes.append(node)
    outputs = tuple(now.get(name, name) for name in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs) if now else graph


@dataclass(frozen=True)
class Rewritten:
    """The graph with every rule that holds for it; `rules` names those that changed it.

    `origin` says of each call that a rule wrote which one of the module it came from.
    """

    graph: Graph
    rules: tuple[str, ...]
    origin: dict[str, str]


def rewritten(
    graph: Graph, bias: bool, long_rows: bool, spared: frozenset[str] = frozenset(), kinds: frozenset[str] = frozenset()
) -> Rewritten:
    """The graph after the rules. No rule is applied to those that are `spared`.

    `bias` takes the bias of a convolution out of the call; `long_rows` folds rows that no block holds piece by piece.
    `kinds` names other rules that are wanted, such as those for a processor.
    """
    graph, used, origin = _expanded(spelled(_largest(_without_ones(functional(graph))))), list[str](), dict[str, str]()
    fewest = next((n for kind, n in LAYOUTS.items() if kind in kinds), None)
    turned = channels_last(graph, bias, fewest, spared) if fewest is not None else None
    if turned is not None and turned.graph is not graph:
        biased = any(isinstance(a, Ref) for node in convolutions(graph) for a in node.args[2:3])
        graph, origin, used = turned.graph, turned.origin, [CHANNELS_LAST, *([BIAS] if bias and biased else [])]
    wanted = kinds | {kind for kind, holds in {"": True, "bias": bias, "long": long_rows}.items() if holds}
    for title, rule in ((title, rule) for title, rule, kind in RULES if kind in wanted):
        after = _applied(graph, rule, spared, origin)
        if after is not graph:
            used.append(title)
        graph = after
    return Rewritten(graph, tuple(used), origin)


def _largest(graph: Graph) -> Graph:
    """A maximum, along a dimension or over windows, gives values alone, or places alone, to who reads only those."""
    readers = users(graph, ())
    by_name = {node.name: node for node in graph.nodes}
    values, gone = dict[str, Node](), set[str]()
    for node in graph.nodes:
        items = [by_name[name] for name in readers.get(node.name, ())]
        read = [item for item in items if readers.get(item.name) or item.name in graph.outputs]
        calls = [_half(node, item.args[1]) if item.op == "_operator.getitem" else None for item in read]
        alone = [call for call in calls if call is not None]
        if read and len(alone) == len(read):
            values |= {i.name: Node(i.name, *call, {}, i.outputs) for i, call in zip(read, alone, strict=True)}
            gone |= {node.name, *(item.name for item in items if item not in read)}
    kept = [values.get(node.name, node) for node in graph.nodes]
    return replace(graph, nodes=tuple(node for node in kept if node.name not in gone)) if values else graph


def _half(node: Node, which: int) -> tuple[str, tuple[Any, ...]] | None:
    """The operator that gives one of the two tensors that a call gives, and its arguments."""
    base = names(node.op)[0]
    if node.op in ("aten.max.dim", "aten.min.dim") and len(node.args) > 1 and node.outputs[0].dtype in DTYPES:
        x, dim, keep = node.args[0], node.args[1], *(node.args[2:] or (False,))
        return (
            (f"aten.a{base}.default", (x, [dim], keep)) if which == 0 else (f"aten.arg{base}.default", (x, dim, keep))
        )
    if which == 0 and base.startswith("max_pool") and base.endswith("_with_indices"):
        return f"aten.{base.removesuffix('_with_indices')}.default", node.args
    if which == 0 and base.startswith("adaptive_max_pool"):
        return f"aten.{base}_values.default", node.args
    return None


def _applied(graph: Graph, rule: Rule, spared: frozenset[str], origin: dict[str, str]) -> Graph:
    known = {name: leaf.spec for name, leaf in graph.leaves.items()}
    known |= {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    nodes, found = list[Node](), False
    for node in graph.nodes:
        first = origin.get(node.name, node.name)
        calls = None if first in spared else rule(node, known)
        nodes += [node] if calls is None else calls
        found |= calls is not None
        origin.update({call.name: first for call in calls or ()})
    return replace(graph, nodes=tuple(nodes)) if found else graph


def _bias(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """cuDNN's convolutions add a bias in a pass of its own over the result: a kernel behind them adds it on its way."""
    if names(node.op)[0] not in CONVOLUTIONS or len(node.args) < 3 or not isinstance(node.args[2], Ref):
        return None
    writer, shape = Writer(node, known), node.spec.shape
    if len(shape) != int(names(node.op)[0][-2]) + 2:
        return None  # without a batch
    bare = writer.call(
        node.op.removeprefix("aten."), *node.args[:2], None, *node.args[3:], shape=shape, dtype=node.spec.dtype
    )
    return biased(writer, bare, node.args[2], known)


LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "soft_margin_loss")
FOLDS = {"sum": "sum.dim_IntList", "mean": "mean.dim", "amax": "amax.default", "amin": "amin.default"}


def _loss(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A loss is a pointwise function of each element, and a mean or sum."""
    reduction = node.args[2] if len(node.args) > 2 else 1
    if names(node.op)[0] not in LOSSES or reduction not in (1, 2) or node.kwargs:
        return None
    x, y = node.args[:2]
    shape = known[x.node].shape
    if shape != known[y.node].shape or node.spec.dtype != "float32":
        return None
    w = Writer(node, known)
    each = w.call(node.op.removeprefix("aten."), x, y, 0, *node.args[3:], shape=shape)
    w.call("mean.dim" if reduction == 1 else "sum.dim_IntList", each, None, False, shape=(), name=node.name)
    return w.calls


WORTH = 1 << 20  # elements of a matrix from which its product with a vector is worth a kernel of its own


def _vector(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A product of a matrix and a vector reads the matrix once: a fold of its rows, or of its columns."""
    base = names(node.op)[0]
    if base not in ("mv", "mm", "matmul", "linear") or node.spec.dtype != "float32":
        return None
    a, b = (known[one.node] for one in node.args[:2])
    bias = node.args[2] if base == "linear" and len(node.args) > 2 else None
    depth, turned = a.shape[-1], base == "linear"  # linear's second operand has the depth last
    if len(b.shape) > 2 or len(a.shape) < 2 or depth < 2:
        return None
    w = Writer(node, known)
    if prod(b.shape) == depth and prod(a.shape) >= WORTH:
        matrix, vector, shape, dim = node.args[0], viewed(w, node.args[1], (depth,)), a.shape, -1
    elif prod(a.shape) == depth and prod(b.shape) >= WORTH:
        matrix, shape, dim = node.args[1], b.shape, -1 if turned else 0
        vector = viewed(w, node.args[0], (depth,) if turned else (depth, 1))
    else:
        return None
    terms = w.call("mul.Tensor", matrix, vector, shape=shape)
    left = shape[:-1] if dim else shape[1:]
    sums = viewed(w, w.call("sum.dim_IntList", terms, [dim], False, shape=left), node.spec.shape)
    if bias is not None:
        w.call("add.Tensor", sums, bias, shape=node.spec.shape)
    w.calls[-1] = replace(w.calls[-1], name=node.name)
    return w.calls


def _max_by_name(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """The maximum of a whole tensor is that over all of its dimensions."""
    if node.op not in ("aten.max.default", "aten.min.default"):
        return None
    return [replace(node, op=f"aten.a{names(node.op)[0]}.default", args=(node.args[0], [], False), kwargs={})]


def _long_fold(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A few long rows are folded piece by piece, and then the pieces: one block a row would leave the device idle."""
    base = names(node.op)[0]
    if base not in FOLDS or not node.outputs or not isinstance(node.args[0], Ref) or node.kwargs.get("dtype"):
        return None
    spec, given = node.spec, known[node.args[0].node]
    shape, rank = given.shape, len(given.shape)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    chosen = (
        {d % rank for d in ([dims] if isinstance(dims, int) else dims)} if dims not in (None, []) else set(range(rank))
    )
    length = prod(shape[d] for d in chosen)
    if chosen != set(range(rank - len(chosen), rank)) or spec.dtype != given.dtype or spec.dtype != "float32":
        return None
    rows, parts = prod(shape) // max(length, 1), pieces(length)
    if parts == 1 or rows >= FEW:
        return None
    w = Writer(node, known)
    rows_of = w.call("view.default", node.args[0], [rows, parts, length // parts], shape=(rows, parts, length // parts))
    part = w.call(FOLDS[base], rows_of, [-1], False, shape=(rows, parts))
    whole = w.call(FOLDS[base], part, [-1], False, shape=(rows,))
    w.call("view.default", whole, list(spec.shape), shape=spec.shape, name=node.name)
    return w.calls


def _long_root(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """The root of a sum of squares, where that is a fold of a few long rows."""
    if names(node.op)[0] != "linalg_vector_norm" or node.kwargs or not isinstance(node.args[0], Ref):
        return None
    given: list[Any] = [2, None, False]
    x, (order, dims, keep) = node.args[0], [*node.args[1:], *given[len(node.args) - 1 :]]
    shape, spec = known[x.node].shape, node.spec
    if order != 2 or spec.dtype != "float32" or known[x.node].dtype != "float32" or prod(spec.shape) >= FEW:
        return None
    if prod(shape) // max(prod(spec.shape), 1) <= LONG:
        return None
    w = Writer(node, known)
    squares = w.call("mul.Tensor", x, x, shape=shape)
    total = w.call("sum.dim_IntList", squares, dims, keep, shape=spec.shape)
    w.call("sqrt.default", total, shape=spec.shape, name=node.name)
    return w.calls


RULES: tuple[tuple[str, Rule, str], ...] = (
    (BIAS, _bias, "bias"),
    ("a batch norm in training is its statistics and a product", batch_norm, ""),
    ("an instance norm is a group norm of single channels", instance_norm, ""),
    ("a loss is a pointwise chain and a mean", _loss, ""),
    ("a cross entropy is a logsumexp less a lookup, and a mean", cross_entropy, ""),
    ("a triplet loss is two distances and a mean", triplet, ""),
    ("a pooling with one window is a mean or a maximum", whole_pool, ""),
    ("attention of many terms is two products and a softmax", wide_attention, "gpu"),
    ("a product with a vector is a fold", _vector, ""),
    ("a convolution by channel is a kernel of its own", depthwise, "gpu"),
    ("the maximum of a tensor is that over its dimensions", _max_by_name, ""),
    ("a norm of long rows takes its moments piece by piece", long_norm, "long"),
    ("a softmax of long rows takes its sums piece by piece", long_softmax, "long"),
    ("a few long running sums are made piece by piece", long_scan, "long"),
    ("a norm of a few long rows is the root of a sum of squares", _long_root, "long"),
    ("a few long rows are folded piece by piece", _long_fold, "long"),
    ("a pooling by windows side by side is a fold of their elements", pooling, "cpu"),
    ("a transposed convolution writes channels last, as the kernel behind it reads", transposed_2d, "cpu"),
    ("a convolution by windows of 3 x 3 has fewer products after transforms (Winograd)", winograd, "winograd"),
    ("a transposed convolution in space is one convolution for each phase of its stride", transposed_3d, "cpu"),
)


def effects(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The calls that change memory which others see, and in whose memory that is."""
    memory = storages(graph)
    for node in graph.nodes:
        if is_in_place(node):
            yield from ((node, memory[name]) for name in mentions(node.args)[:1])
        elif names(node.op)[0] in ("batch_norm", "instance_norm") and node.args[5]:
            yield from ((node, memory[a.node]) for a in node.args[3:5] if isinstance(a, Ref))


def constants(graph: Graph) -> set[str]:
    """The tensors of one value that forward makes, and that nothing changes."""
    changed = {where for _, where in effects(graph)}
    return {node.name for node in graph.nodes if names(node.op)[0] in CONSTANTS} - changed
