"""How calls behind convolutions are written with channels last: a row of `RULES` each, beside pointwise ones."""

from __future__ import annotations

from math import prod
from typing import Any

from kernel_agent.proposers.regions.canonical import whole_pool
from kernel_agent.proposers.regions.norms import follow, joined, standard
from kernel_agent.proposers.regions.on_cpu import pooling
from kernel_agent.proposers.regions.rule import Writer, viewed
from kernel_agent.proposers.regions.turner import Turn, Turner, order, turned
from kernel_agent.proposers.templates.graph import Node, Ref, Shape
from kernel_agent.proposers.templates.lowering import DTYPES, mentions, names
from kernel_agent.proposers.templates.pointwise import POINTWISE

RANKS = (4, 5)  # of a batch of planes or of spaces with channels
POOLS = {f"{kind}_pool{d}d" for kind in ("max", "avg", "adaptive_avg") for d in (2, 3)}
SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
FOLDS = ("sum", "mean", "amax", "amin", "logsumexp")
MANY = 1 << 15  # results that fill a large device where a block has 32 of them
STAGED = 128  # channels of rows that a block keeps in shared memory
TAPS = 8  # places of windows side by side that a kernel reads like so many tensors
HELD = 1 << 9  # places whose moments 16 threads take from their registers


def rule_of(node: Node) -> Turn | None:
    """How a call is written with channels last."""
    base = names(node.op)[0]
    if len(node.outputs) != 1 or node.outputs[0].dtype not in DTYPES or (node.kwargs and base not in POINTWISE):
        return None
    if base in POINTWISE and not mentions(node.kwargs) and len(mentions(node.args)) == sum(map(_is_ref, node.args)):
        return _pointwise if len(node.spec.shape) in RANKS else None
    return RULES.get(base)


def _is_ref(argument: Any) -> bool:
    return isinstance(argument, Ref)


def _pointwise(t: Turner, w: Writer) -> bool:
    spec = w.node.spec
    args = [t.of(w, a, len(spec.shape)) for a in w.node.args]
    return t.finish(w, w.repeat(w.node, args, turned(spec.shape)), spec)


def _prelu(t: Turner, w: Writer) -> bool:
    """What is above zero, and what is below by a weight for each channel."""
    x, weight = w.node.args
    of, shape, dtype = Ref(t.last[x.node]), turned(w.node.spec.shape), w.node.spec.dtype
    above = w.call("clamp_min.default", of, 0, shape=shape, dtype=dtype)
    below = w.call("clamp_max.default", of, 0, shape=shape, dtype=dtype)
    scaled = w.call("mul.Tensor", below, weight, shape=shape, dtype=dtype)
    return t.finish(w, w.call("add.Tensor", above, scaled, shape=shape, dtype=dtype), w.node.spec)


def _softmax(t: Turner, w: Writer) -> bool:
    x, dim, *rest = w.node.args
    rank, spec = len(w.node.spec.shape), w.node.spec
    if dim % rank == 1 and spec.shape[1] <= STAGED and t.returns(w.node.name):
        t.across.add(w.node.name)  # one kernel reads channels last and writes channels first
        return False
    at = order(rank).index(dim % rank)
    result = w.repeat(w.node, [Ref(t.last[x.node]), at, *rest], turned(spec.shape))
    return t.finish(w, result, spec)


def _fold(t: Turner, w: Writer) -> bool:
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


def _pool(t: Turner, w: Writer) -> bool:
    node = w.node
    if whole := whole_pool(node, t.known):
        w.node = whole[0]
        return _fold(t, w)
    op, args, spec = f"{names(node.op)[0]}_last.default", node.args[1:], node.spec
    if (beside := pooling(node, t.known)) and prod(beside[0].args[1]) <= TAPS:
        op, args = f"{names(beside[0].op)[0]}_last.default", beside[0].args[1:]
    result = w.call(op, Ref(t.last[node.args[0].node]), *args, shape=turned(spec.shape), dtype=spec.dtype)
    return t.finish(w, result, spec)


def _cat(t: Turner, w: Writer) -> bool:
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


def _batch_norm(t: Turner, w: Writer) -> bool:
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
        mean, var = joined(w, viewed(w, t.again(w, of), cut), cut, [0, 1], 2)
        follow(w, w.node, mean, var, batch * places)
    return t.finish(w, standard(w, of, shape, (mean, var), wide, eps, (weight, bias)), spec)


def _group_norm(t: Turner, w: Writer) -> bool:
    x, groups, weight, bias, eps = [*w.node.args, None, None, 1e-5][:5]
    return _normed(t, w, (x, weight, bias), groups, eps)


def _instance_norm(t: Turner, w: Writer) -> bool:
    x, weight, bias, mean, var, by_input, _, eps = w.node.args[:8]
    if not by_input or isinstance(mean, Ref) or isinstance(var, Ref):
        return False
    return _normed(t, w, (x, weight, bias), w.node.spec.shape[1], eps)


def _normed(t: Turner, w: Writer, of: tuple[Ref, Ref | None, Ref | None], groups: int, eps: float) -> bool:
    """A norm over the places and the channels of a group: moments of pieces of the places, joined, and a product."""
    shape, spec = turned(w.node.spec.shape), w.node.spec
    batch, channels, places = shape[0], shape[-1], prod(shape[1:-1])
    parts, each = _parts(places), channels // groups
    if spec.dtype != "float32" or parts is None:
        return False
    x, affine = Ref(t.last[of[0].node]), [viewed(w, a, (groups, each)) if isinstance(a, Ref) else None for a in of[1:]]
    cut, flat = (batch, parts, places // parts, groups, each), (batch, places, groups, each)
    mean, var = joined(w, viewed(w, t.again(w, x), cut), cut, [1, 3], 2)
    wide = (batch, 1, groups, 1)
    moments = viewed(w, mean, wide), viewed(w, var, wide)
    scaled = standard(w, viewed(w, x, flat), flat, moments, wide, eps, affine)
    return t.finish(w, viewed(w, scaled, shape), spec)


RULES: dict[str, Turn] = {
    **dict.fromkeys(SOFTMAX, _softmax),
    **dict.fromkeys(FOLDS, _fold),
    **dict.fromkeys(POOLS, _pool),
    "cat": _cat,
    "prelu": _prelu,
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
}
