"""Rules that say a call as another one that kernels are written for, or that larger devices are better at."""

from __future__ import annotations

from math import prod
from typing import Any

from kernel_agent.proposers.regions.rule import UNCACHED_ROW, Writer, biased, pieces, viewed
from kernel_agent.proposers.templates.attention import WIDEST
from kernel_agent.proposers.templates.depthwise import TAPS
from kernel_agent.proposers.templates.graph import Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import DTYPES, names

POOLS = {f"{kind}_pool{d}d": d for kind in ("max", "avg") for d in (1, 2, 3)}
ADAPTIVE = {
    **{f"adaptive_avg_pool{d}d": d for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d_values": d for d in (1, 2, 3)},
}


def whole_pool(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A pooling with one window a plane that covers it is a mean or a maximum over it."""
    base = names(node.op)[0]
    dims = POOLS.get(base) or ADAPTIVE.get(base)
    if dims is None or not isinstance(node.args[0], Ref) or node.kwargs or prod(node.spec.shape[-dims:]) != 1:
        return None
    shape = known[node.args[0].node].shape
    if base in POOLS and not _covers(node, shape[-dims:]):
        return None
    op = "amax.default" if "max" in base else "mean.dim"
    w, spec = Writer(node, known), node.spec
    w.call(op, node.args[0], list(range(-dims, 0)), True, shape=spec.shape, dtype=spec.dtype, name=node.name)
    return w.calls


LOWEST = -3.4028234663852886e38  # what stands for the maximum of a piece of nothing but -inf


def long_softmax(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A softmax of rows that no cache keeps reads them twice: for each piece's maximum and sum, and to write.

    The sums of pieces are joined as in "Online normalizer calculation for softmax" (Milakov and Gimelshein, 2018).
    """
    base = names(node.op)[0].removeprefix("_")
    if base not in ("softmax", "log_softmax") or node.kwargs or node.spec.dtype != "float32":
        return None
    x, dim, *dtype = node.args
    shape = node.spec.shape
    if not isinstance(x, Ref) or known[x.node] != node.spec or any(dtype) or dim % len(shape) != len(shape) - 1:
        return None
    length, parts = shape[-1], pieces(shape[-1])
    if parts == 1 or length < UNCACHED_ROW:
        return None
    w, rows = Writer(node, known), prod(shape[:-1])
    cut, few, one = (rows, parts, length // parts), (rows, parts), (rows, 1)
    of = viewed(w, x, cut)
    top = w.call("amax.default", of, [2], True, shape=(*few, 1))
    top = w.call("clamp_min.default", top, LOWEST, shape=(*few, 1))
    powers = w.call("exp.default", w.call("sub.Tensor", of, top, shape=cut), shape=cut)
    sums, tops = w.call("sum.dim_IntList", powers, [2], False, shape=few), viewed(w, top, few)
    whole = w.call("amax.default", tops, [1], True, shape=one)
    scale = w.call("exp.default", w.call("sub.Tensor", tops, whole, shape=few), shape=few)
    total = w.call("sum.dim_IntList", w.call("mul.Tensor", sums, scale, shape=few), [1], True, shape=one)
    away = w.call("sub.Tensor", viewed(w, x, (rows, length)), whole, shape=(rows, length))
    if base == "softmax":
        share = w.call("reciprocal.default", total, shape=one)
        out = w.call("mul.Tensor", w.call("exp.default", away, shape=(rows, length)), share, shape=(rows, length))
    else:
        out = w.call("sub.Tensor", away, w.call("log.default", total, shape=one), shape=(rows, length))
    w.call("view.default", out, list(shape), shape=shape, name=node.name)
    return w.calls


def _covers(node: Node, plane: tuple[int, ...]) -> bool:
    """Whether a window is the plane itself, all else being as it is without being said."""
    window = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
    window = list(window) * (len(plane) if len(window) == 1 else 1)
    padding = node.args[3] if len(node.args) > 3 else 0
    padded = any(padding) if isinstance(padding, list | tuple) else padding
    return list(plane) == window and not padded and len(node.args) <= 4


def depthwise(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A convolution of which each channel comes of one channel is a kind of its own, and adds its bias after it."""
    base, overload = names(node.op)
    if base not in ("conv1d", "conv2d", "conv3d") or overload == "padding" or node.kwargs or len(node.args) < 7:
        return None
    x, weight, bias = node.args[:3]
    shape, taps = node.spec.shape, known[weight.node].shape
    alone = node.args[6] > 1 and taps[1] == 1 and len(shape) == len(taps)
    if not alone or prod(taps[-2:]) > TAPS or node.spec.dtype not in DTYPES:
        return None
    w, op = Writer(node, known), f"depthwise{base[-2]}d.default"
    if not isinstance(bias, Ref):
        return [Node(node.name, f"aten.{op}", node.args, {}, node.outputs)]
    bare = w.call(op, x, weight, None, *node.args[3:], shape=shape, dtype=node.spec.dtype)
    return biased(w, bare, bias, known)


def _filled(node: Node, *defaults: Any) -> list[Any]:
    """A call's arguments, and what PyTorch takes for those that it leaves out."""
    return [*node.args, *defaults[len(node.args) :]]


def wide_attention(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """Attention of more terms than a kernel of ours keeps sums of is two products and the softmax of their scores."""
    if names(node.op)[0] != "scaled_dot_product_attention" or len(node.args) > 3 or set(node.kwargs) - {"scale"}:
        return None
    q, k, v = node.args
    values = node.spec.shape[-1]
    shape, keys = known[q.node].shape, known[k.node].shape
    terms, given = shape[-1], node.kwargs.get("scale")
    if max(terms, values) <= WIDEST or node.spec.dtype != "float32" or shape[:-2] != keys[:-2]:
        return None
    w, scores = Writer(node, known), (*shape[:-1], keys[-2])
    turned = w.call("transpose.int", k, -2, -1, shape=(*keys[:-2], terms, keys[-2]))
    made = w.call("matmul.default", q, turned, shape=scores)
    made = w.call("mul.Tensor", made, terms**-0.5 if given is None else given, shape=scores)
    weights = w.call("softmax.int", made, -1, shape=scores)
    w.call("matmul.default", weights, v, shape=node.spec.shape, name=node.name)
    return w.calls


def cross_entropy(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A cross entropy is a logsumexp less the element that the target names, and a mean over what is not ignored."""
    if names(node.op)[0] != "cross_entropy_loss" or node.kwargs:
        return None
    x, target, weight, reduction, ignored, smoothing = _filled(node, None, None, None, 1, -100, 0.0)
    if not isinstance(x, Ref) or not isinstance(target, Ref) or weight is not None or smoothing:
        return None
    shape, spec = known[x.node].shape, known[target.node]
    if spec.dtype != "int64" or known[x.node].dtype != "float32" or len(shape) < 2:
        return None
    w, some = Writer(node, known), spec.shape
    whole = w.call("logsumexp.default", x, [1], False, shape=some)
    index = w.call("unsqueeze.default", target, 1, shape=(some[0], 1, *some[1:]), dtype="int64")
    named = w.call("gather.default", x, 1, index, shape=(some[0], 1, *some[1:]))
    away = w.call("sub.Tensor", whole, viewed(w, named, some), shape=some)
    kept = w.call("ne.Scalar", target, ignored, shape=some, dtype="bool")
    if reduction == 0:
        w.call("where.ScalarOther", kept, away, 0.0, shape=some, name=node.name)
        return w.calls
    each = w.call("where.ScalarOther", kept, away, 0.0, shape=some)
    if reduction == 2:
        w.call("sum.dim_IntList", each, None, False, shape=(), name=node.name)
        return w.calls
    total = w.call("sum.dim_IntList", each, None, False, shape=())
    counts = w.call("where.Scalar", kept, 1.0, 0.0, shape=some)
    count = w.call("sum.dim_IntList", counts, None, False, shape=())
    w.call("div.Tensor", total, count, shape=(), name=node.name)
    return w.calls


def triplet(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A triplet loss is two distances by row, and a mean of what their difference lacks to the margin."""
    if names(node.op)[0] != "triplet_margin_loss" or node.kwargs:
        return None
    margin, order, eps, swap, reduction = _filled(node, None, None, None, 1.0, 2.0, 1e-6, False, 1)[3:]
    specs = [known[a.node] for a in node.args[:3] if isinstance(a, Ref)]
    if len(specs) != 3 or len({s.shape for s in specs}) > 1 or swap or order != 2 or specs[0].dtype != "float32":
        return None
    w, shape = Writer(node, known), specs[0].shape
    rows = shape[:-1]

    def distance(other: Ref) -> Ref:
        away = w.call("sub.Tensor", node.args[0], other, shape=shape)
        apart = w.call("add.Tensor", away, eps, shape=shape)
        return w.call("linalg_vector_norm.default", apart, 2, [-1], False, shape=rows)

    near, far = distance(node.args[1]), distance(node.args[2])
    lacks = w.call("add.Tensor", w.call("sub.Tensor", near, far, shape=rows), margin, shape=rows)
    if reduction == 0:
        w.call("clamp_min.default", lacks, 0, shape=rows, name=node.name)
        return w.calls
    each = w.call("clamp_min.default", lacks, 0, shape=rows)
    w.call("mean.dim" if reduction == 1 else "sum.dim_IntList", each, None, False, shape=(), name=node.name)
    return w.calls
