"""Attention as one call: products with a softmax between them, or PyTorch's own, where a kernel of ours covers it.

The scores are no tensor then. See `templates/attention.py` for what the call says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.plan import specs, traffic
from kernel_agent.proposers.regions.rewrite import effects
from kernel_agent.proposers.regions.views import is_view, storages, users
from kernel_agent.proposers.templates.attention import FLOATS
from kernel_agent.proposers.templates.forms import Form, form_of, is_product
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import mentions, names
from kernel_agent.proposers.templates.routine import Routine

TITLE = "attention keeps its scores on the chip"
BATCH = "abcfghijkl"  # letters of an equation that have no role
SAME = ("dropout", "contiguous", "clone", "detach", "alias", "expand", "view", "reshape", "_unsafe_view")


def attended(graph: Graph, build: Callable[[Graph], Routine]) -> tuple[Graph, tuple[str, ...]]:
    """The graph with attention as one call where `build` makes a kernel of it, and the rule where it held."""
    if not any("softmax" in node.op or _is_direct(node) for node in graph.nodes):
        return graph, ()
    finder, found = _Finder(graph), dict[str, Node]()
    for node in graph.nodes:
        one = finder.of(node) if node.name in finder.live else None
        if one is None:
            continue
        call = finder.written(one)
        if finder.still(one, call) and _is_covered(call, finder.known, build):
            found[call.name] = call
    if not found:
        return graph, ()
    nodes = tuple(found.get(node.name, node) for node in graph.nodes)
    wanted = _live(replace(graph, nodes=nodes))
    return replace(graph, nodes=tuple(node for node in nodes if node.name in wanted)), (TITLE,)


def _is_direct(node: Node) -> bool:
    return names(node.op)[0] == "scaled_dot_product_attention"


def _is_covered(call: Node, known: Mapping[str, Spec], build: Callable[[Graph], Routine]) -> bool:
    leaves = {name: Leaf(name, known[name], None) for name in mentions(call.args)}
    try:
        build(Graph((), leaves, (call,), (call.name,), "tensor"))
    except NotCovered:
        return False
    return True


def _live(graph: Graph) -> set[str]:
    """What a result or an effect rests on."""
    made, found = {node.name: node for node in graph.nodes}, set[str]()
    stack = [*graph.outputs, *(node.name for node, _ in effects(graph))]
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += mentions([made[name].args, made[name].kwargs]) if name in made else []
    return found


@dataclass(frozen=True)
class _Mask:
    """How scores are masked: as `attention.MASKS` names it, by which tensor, and what hidden ones are."""

    how: str = "none"
    by: Ref | None = None
    fill: float = -inf


@dataclass(frozen=True)
class _Found:
    """An attention: letters and tensor of queries, keys, values, the letters of scores and result, and which calls
    stand for it, the last of which gives the result."""

    operands: Sequence[tuple[str, Ref]]
    scores: str
    out: str
    mask: _Mask
    scale: float
    empty_is_zero: bool
    calls: Sequence[Node]


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.known, self.live = graph, specs(graph), _live(graph)
        self.made = {node.name: node for node in graph.nodes}
        self.position = {node.name: i for i, node in enumerate(graph.nodes)}
        self.memory, self.changes = storages(graph), tuple(effects(graph))

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """The live calls that read each."""
        return {name: [n for n in some if n in self.live] for name, some in users(self.graph, ()).items()}

    def of(self, node: Node) -> _Found | None:
        """The attention that a call is, or whose softmax it is."""
        if _is_direct(node):
            return self._direct(node)
        if names(node.op)[0] not in ("softmax", "_softmax") or node.kwargs or len(node.args) < 2:
            return None
        x, dim, *dtype = node.args
        rank = len(node.spec.shape)
        if any(dtype) or not isinstance(dim, int) or dim % rank != rank - 1 or self.known[x.node] != node.spec:
            return None
        return self._apart(node) if node.spec.dtype in FLOATS else None

    def _direct(self, node: Node) -> _Found | None:
        given: list[Any] = [None, 0.0, False]
        order = ("attn_mask", "dropout_p", "is_causal")
        mask, dropout, causal = [
            node.kwargs.get(name, value)
            for name, value in zip(order, [*node.args[3:6], *given[len(node.args) - 3 :]], strict=True)
        ]
        shapes = [self.known[ref.node] for ref in node.args[:3]]
        if dropout or (causal and mask is not None) or node.kwargs.get("enable_gqa"):
            return None
        if any(spec.dtype != "float32" for spec in shapes) or len({len(spec.shape) for spec in shapes}) > 1:
            return None
        rank = len(shapes[0].shape)
        if rank - 2 > len(BATCH) or (mask is not None and self._rank(mask) > rank):
            return None
        batch = BATCH[: rank - 2]
        how = "causal" if causal else "none"
        if mask is not None:
            how = {"bool": "keep", "float32": "add"}.get(self.known[mask.node].dtype, "")
        scale = node.kwargs.get("scale")
        scale = 1 / sqrt(shapes[0].shape[-1]) if scale is None else scale
        letters = (f"{batch}md", f"{batch}nd", f"{batch}ne")
        operands = list(zip(letters, node.args[:3], strict=True))
        return _Found(operands, f"{batch}mn", f"{batch}me", _Mask(how, mask), scale, True, [node]) if how else None

    def _apart(self, softmax: Node) -> _Found | None:
        behind = self._behind(softmax)
        last = self._last(softmax)
        if behind is None or last is None:
            return None
        scale, mask, calls = behind
        try:
            first, second = (form_of(node, self.graph, FLOATS) for node in (calls[0], last))
        except NotCovered:
            return None
        letters = _letters(first, second)
        if first.rest:
            if names(calls[0].op)[0] != "baddbmm" or mask.how != "none" or scale != 1:
                return None
            mask = _Mask("add", calls[0].args[0])
        if letters is None or second.rest or calls[0].spec != softmax.spec:
            return None
        (q, of_q), (k, of_k) = self._unscaled(first.a), self._unscaled(first.b)
        operands = [(letters[0], q), (letters[1], k), (letters[3], second.b)]
        calls = [*calls, softmax, last]
        return _Found(operands, letters[2], letters[4], mask, scale * of_q * of_k, False, calls)

    def _behind(self, softmax: Node) -> tuple[float, _Mask, list[Node]] | None:
        """The scale of scores, their mask, and the calls from their product to before the softmax."""
        name, scale, mask, calls = softmax.args[0].node, 1.0, _Mask(), list[Node]()
        while (node := self._alone(name)) is not None:
            calls.insert(0, node)
            if is_product(node):
                return scale, mask, calls
            if node.outputs != softmax.outputs:
                return None
            factor, by = _factor(node), self._mask(node)
            if _shows(node):
                name = mentions(node.args)[0]
            elif factor is not None:
                name, scale = node.args[0].node, scale * factor
            elif by is not None and mask.how == "none" and scale == 1:
                name, mask = by
            else:
                return None
        return None

    def _alone(self, name: str) -> Node | None:
        """A call that one other alone reads."""
        alone = len(self.readers.get(name, ())) == 1 and name not in self.graph.outputs
        return self.made.get(name) if alone else None

    def _mask(self, node: Node) -> tuple[str, _Mask] | None:
        """The scores that a call masks, and how."""
        base, args = names(node.op)[0], [*node.args]
        if node.kwargs or len(args) < 2:
            return None
        if base == "add" and all(isinstance(one, Ref) for one in args[:2]):
            for scores, by in ((args[0], args[1]), (args[1], args[0])):
                if self.known[by.node].dtype in FLOATS and self._leads(scores.node):
                    return scores.node, _Mask("add", by)
        bools = [isinstance(one, Ref) and self.known[one.node].dtype == "bool" for one in args]
        fill = args[-1]
        if base == "masked_fill" and bools == [False, True, False] and isinstance(fill, int | float):
            return args[0].node, _Mask("hide", args[1], float(fill))
        if node.op == "aten.where.ScalarOther" and bools == [True, False, False]:
            by, scores, fill = args
            return (scores.node, _Mask("keep", by, float(fill))) if isinstance(scores, Ref) else None
        return None

    def _leads(self, name: str) -> bool:
        """Whether these are a product, maybe scaled."""
        node = self._alone(name)
        while node is not None and not is_product(node):
            node = self._alone(mentions(node.args)[0]) if _shows(node) or _factor(node) is not None else None
        return node is not None

    def _last(self, softmax: Node) -> Node | None:
        """The product that alone reads the weights, as its first operand."""
        node, name = softmax, softmax.name
        while len(some := self.readers.get(name, [])) == 1 and name not in self.graph.outputs:
            node, before = self.made[some[0]], name
            if is_product(node):
                try:
                    return node if form_of(node, self.graph, FLOATS).a == Ref(before) else None
                except NotCovered:
                    return None
            if not _shows(node) or node.outputs != softmax.outputs:
                return None
            name = node.name
        return None

    def _unscaled(self, ref: Ref) -> tuple[Ref, float]:
        """An operand without a number that it is multiplied by."""
        node = self.made.get(ref.node)
        factor = _factor(node) if node is not None else None
        return (node.args[0], factor) if node is not None and factor is not None else (ref, 1.0)

    def written(self, of: _Found) -> Node:
        """The call that stands for an attention, by the name of what it gives: its result, or that with its dimensions
        in the order in which alone it is read."""
        last, out = of.calls[-1], of.out
        some = self.readers.get(last.name, [])
        reader = self.made[some[0]] if len(some) == 1 and last.name not in self.graph.outputs else None
        order = _order(reader, len(out)) if reader is not None else None
        if reader is not None and order is not None:
            out, last = "".join(out[i] for i in order), reader
        mask = [(of.scores[len(of.scores) - self._rank(of.mask.by) :], of.mask.by)] if of.mask.by else []
        tensors = [*of.operands, *mask]
        equation = f"{','.join(letters for letters, _ in tensors)}->{out}"
        args = (equation, [ref for _, ref in tensors], of.mask.how, of.scale, of.mask.fill, of.empty_is_zero)
        told = {"saved": sum(self._saved(of)), "calls": sum(not is_view(node) for node in of.calls)}
        return Node(last.name, "aten.attention.default", args, told, last.outputs)

    def still(self, of: _Found, call: Node) -> bool:
        """Whether nothing that an attention reads changes before the call that stands for it reads it."""
        apart = [self.made[name] for node in of.calls for name in mentions(node.args) if name in self.made]
        begin = min(self.position[node.name] for node in (*of.calls, *(one for one in apart if _factor(one))))
        at = range(begin, self.position[call.name])
        changed = {where for node, where in self.changes if self.position[node.name] in at}
        return not changed & {self.memory[name] for name in mentions(call.args)}

    def _rank(self, ref: Ref) -> int:
        return len(self.known[ref.node].shape)

    def _saved(self, of: _Found) -> Iterator[int]:
        """Bytes of each call but of what products read and write beside scores."""
        products = [node for node in of.calls if is_product(node)]
        for node in of.calls:
            if node in products:
                yield node.spec.bytes if node is products[0] else self.known[products[0].name].bytes
            elif not is_view(node) and not _is_direct(node):
                yield traffic(node, self.known)


def _shows(node: Node) -> bool:
    return names(node.op)[0] in SAME and is_view(node)


def _factor(node: Node) -> float | None:
    """The number that a call multiplies its tensor by."""
    base, args = names(node.op)[0], node.args
    if base not in ("mul", "div") or node.kwargs or len(args) != 2 or not isinstance(args[0], Ref):
        return None
    if isinstance(args[1], Ref) or node.spec.dtype not in FLOATS or not args[1]:
        return None
    return float(args[1]) if base == "mul" else 1 / float(args[1])


def _order(reader: Node, rank: int) -> list[int] | None:
    """The dimensions in a call's order, where it only reorders them and keeps the last."""
    base, order = names(reader.op)[0], list(range(rank))
    if base == "permute":
        order = [dim % rank for dim in reader.args[1]]
    elif base == "transpose":
        a, b = (dim % rank for dim in reader.args[1:3])
        order[a], order[b] = order[b], order[a]
    return order if order != list(range(rank)) and order[-1] == rank - 1 else None


def _letters(first: Form, second: Form) -> tuple[str, str, str, str, str] | None:
    """The letters of queries, keys, scores, values and result, where both products are those of an attention."""
    (q, k, scores), (weights, values, out) = first.labels, second.labels
    terms = [label for label in q if label in k and label not in scores]
    queries = [label for label in scores if label not in k]
    made = [label for label in values if label not in weights]
    if len(terms) != 1 or len(queries) != 1 or len(made) != 1 or len(weights) != len(scores):
        return None
    batch = [label for label in scores if label in q and label in k]
    if scores[-1] in q or scores[-1] not in k or len(batch) != len(scores) - 2 or len(batch) > len(BATCH):
        return None
    named = {terms[0]: "d", queries[0]: "m", scores[-1]: "n", **dict(zip(batch, BATCH, strict=False))}
    again = {label: named[other] for label, other in zip(weights, scores, strict=True)} | {made[0]: "e"}
    sides = [*([named[label] for label in some] for some in (q, k, scores))]
    sides += [[again[label] for label in some] for some in (values, out)]
    if (
        "m" in sides[3]
        or "n" not in sides[3]
        or "n" in sides[4]
        or sorted(sides[4]) != sorted(f"{'me'}{BATCH[: len(batch)]}")
    ):
        return None
    a, b, c, d, e = ("".join(side) for side in sides)
    return a, b, c, d, e
