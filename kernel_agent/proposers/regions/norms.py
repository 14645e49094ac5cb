"""Rules for norms: what a device does badly as one call becomes statistics, which are folds, and a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from kernel_agent.proposers.regions.rule import FEW, Writer, pieces, viewed
from kernel_agent.proposers.templates.graph import Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import names

LOT = 512  # samples whose moments few threads take by themselves


def batch_norm(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """In training a batch norm is a mean, a variance about it and a product: its statistics are folds like others."""
    if names(node.op)[0] != "batch_norm" or not node.args[5]:
        return None
    x, weight, bias = node.args[:3]
    spec, n = node.spec, prod(node.spec.shape) // node.spec.shape[1]
    if spec.dtype != "float32" or n < 2 or node.args[6] is None:
        return None
    w, channels, inner = Writer(node, known), spec.shape[1], prod(spec.shape[2:])
    wide = [channels, *(1,) * (len(spec.shape) - 2)]
    parts = _lots(n) if channels < FEW else 1
    if inner == 1 and parts > 1:
        cut = (parts, n // parts, channels)
        mean, var = joined(w, viewed(w, x, cut), cut, [0], 1)
    else:
        mean, var = _moments(w, x, spec.shape, n) if inner == 1 else _moments_in_two(w, x, spec.shape)
    follow(w, node, mean, var, n)
    moments = viewed(w, mean, wide), viewed(w, var, wide)
    affine = [viewed(w, a, wide) if isinstance(a, Ref) else None for a in (weight, bias)]
    standard(w, x, spec.shape, moments, wide, node.args[7], affine)
    w.calls[-1] = replace(w.calls[-1], name=node.name)
    return w.calls


def _lots(samples: int) -> int:
    """Into how many lots of one size samples are cut so that a thread has few of each; 1 where there is no way."""
    return next((parts for parts in range(-(-samples // LOT), samples // 16 + 1) if samples % parts == 0), 1)


def follow(w: Writer, node: Node, mean: Ref, var: Ref, n: int) -> None:
    """The statistics that a batch norm keeps follow those of n elements a channel, as torch.nn.BatchNorm2d says."""
    mean_, var_, momentum = node.args[3], node.args[4], node.args[6]
    if not isinstance(mean_, Ref) or not isinstance(var_, Ref):
        return
    channels = (node.spec.shape[1],)
    for kept, new, scale in ((mean_, mean, 1.0), (var_, var, n / (n - 1))):
        old = w.call("mul.Tensor", kept, 1 - momentum, shape=channels)
        part = w.call("mul.Tensor", new, momentum * scale, shape=channels)
        total = w.call("add.Tensor", old, part, shape=channels)
        w.call("copy_.default", kept, total, shape=channels)


def standard(
    w: Writer,
    x: Any,
    shape: Sequence[int],
    moments: tuple[Ref, Ref],
    wide: Sequence[int],
    eps: float,
    affine: Sequence[Ref | None],
) -> Ref:
    """x less its mean, over the root of its variance and eps, by a weight, with a bias; `wide` shapes both moments."""
    mean, var = moments
    away = w.call("sub.Tensor", x, mean, shape=shape)
    grown = w.call("add.Tensor", var, eps, shape=wide)
    out = w.call("mul.Tensor", away, w.call("rsqrt.default", grown, shape=wide), shape=shape)
    for op, by in zip(("mul.Tensor", "add.Tensor"), affine, strict=True):
        out = w.call(op, out, by, shape=shape) if by is not None else out
    return out


def _moments(w: Writer, x: Any, shape: Sequence[int], n: int) -> tuple[Ref, Ref]:
    """Mean and variance by channel where nothing follows the channels: one fold over the batch."""
    dims, kept = [0, *range(2, len(shape))], [1, shape[1], *(1,) * (len(shape) - 2)]
    mean = w.call("mean.dim", x, dims, True, shape=kept)
    away = w.call("sub.Tensor", x, mean, shape=shape)
    var = w.call("mean.dim", w.call("mul.Tensor", away, away, shape=shape), dims, False, shape=(shape[1],))
    return viewed(w, mean, (shape[1],)), var


def _moments_in_two(w: Writer, x: Any, shape: Sequence[int]) -> tuple[Ref, Ref]:
    """Mean and variance by channel from those of each sample's channel, joined by Chan's formula."""
    samples, channels, inner = shape[0], shape[1], prod(shape[2:])
    parts = pieces(inner)
    cut = (samples, channels, parts, inner // parts)
    return joined(w, viewed(w, x, cut), cut, [0, 2])


def joined(w: Writer, x: Ref, shape: Sequence[int], dims: list[int], last: int = -1) -> tuple[Ref, Ref]:
    """Mean and biased variance over the dimension `last` of x and `dims` of what is left, from those of its rows."""
    last %= len(shape)
    one, outer = (*shape[:last], 1, *shape[last + 1 :]), (*shape[:last], *shape[last + 1 :])
    others = tuple(1 if d in dims else n for d, n in enumerate(outer))
    flat = tuple(n for d, n in enumerate(outer) if d not in dims)
    mean = w.call("mean.dim", x, [last], True, shape=one)
    away = w.call("sub.Tensor", x, mean, shape=shape)
    square = w.call("mul.Tensor", away, away, shape=shape)
    spread = w.call("mean.dim", square, [last], False, shape=outer)
    part = viewed(w, mean, outer)
    if prod(outer[d] for d in dims) == 1:
        return viewed(w, mean, flat), viewed(w, spread, flat)
    whole = w.call("mean.dim", part, dims, True, shape=others)
    off = w.call("sub.Tensor", part, whole, shape=outer)
    between = w.call("mul.Tensor", off, off, shape=outer)
    both = w.call("add.Tensor", spread, between, shape=outer)
    return viewed(w, whole, flat), w.call("mean.dim", both, dims, False, shape=flat)


def instance_norm(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """An instance norm by its input's statistics is a group norm of one channel a group."""
    if names(node.op)[0] != "instance_norm" or not node.args[5] or any(isinstance(a, Ref) for a in node.args[3:5]):
        return None
    x, weight, bias, eps = node.args[0], node.args[1], node.args[2], node.args[7]
    op = "aten.group_norm.default"
    return [replace(node, op=op, args=(x, node.spec.shape[1], weight, bias, eps, False), kwargs={})]


def long_norm(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A norm of a row that no block's registers hold takes its moments piece by piece: it is read twice, not thrice."""
    base, spec = names(node.op)[0], node.spec if node.outputs else None
    if base not in ("group_norm", "layer_norm") or spec is None or spec.dtype != "float32" or not spec.bytes:
        return None
    shape = spec.shape
    args = [*node.args, *[None] * 5]
    weight, bias, eps = args[2], args[3], 1e-5 if args[4] is None else args[4]
    if base == "group_norm":
        rows, wide = shape[0] * args[1], (shape[1], *(1,) * (len(shape) - 2))
    else:
        first = len(shape) - len(args[1])
        rows, wide = prod(shape[:first]), tuple(shape[first:])
    length = prod(shape) // rows
    parts = pieces(length)
    if parts == 1:
        return None
    w = Writer(node, known)
    cut = (rows, parts, length // parts)
    mean, var = joined(w, viewed(w, args[0], cut), cut, [1])
    flat, moments = viewed(w, args[0], (rows, length)), (viewed(w, mean, (rows, 1)), viewed(w, var, (rows, 1)))
    out = viewed(w, standard(w, flat, (rows, length), moments, (rows, 1), eps, (None, None)), shape)
    if isinstance(weight, Ref):
        out = w.call("mul.Tensor", out, viewed(w, weight, wide), shape=shape)
    if isinstance(bias, Ref):
        out = w.call("add.Tensor", out, viewed(w, bias, wide), shape=shape)
    w.calls[-1] = replace(w.calls[-1], name=node.name)
    return w.calls
