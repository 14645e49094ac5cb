"""Rules for a processor: what its libraries do badly becomes what a kernel of ours, or another call, does well.

Measured on one core of an AMD EPYC with AVX-512 and torch 2.13 (oneDNN): a maximum over windows of 2 x 2 took 11 ms for
two million elements; a transposed convolution by strides of two took 22 ms and 7 with channels last, since its result
lies so and was copied; one in space has no oneDNN at all, and eight plain convolutions took half its time.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from kernel_agent.proposers.regions.rule import Writer
from kernel_agent.proposers.regions.rungs import WINOGRAD
from kernel_agent.proposers.templates.graph import Node, Ref, Shape, Spec
from kernel_agent.proposers.templates.lowering import names

POOLS = {f"{kind}_pool{d}d": (kind, d) for kind in ("max", "avg") for d in (1, 2, 3)}
FEWEST, MOST = 8, 512  # channels between which the transforms pay and a block of tiles stays in the L2 cache
WIDEST = 27
"""Elements of a window at most: each is a load of its own."""


def pooling(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """Windows that neither overlap nor reach beyond the edge: each element of the result folds elements of its own."""
    kind, rank = POOLS.get(names(node.op)[0], ("", 0))
    if not rank or not isinstance(node.args[0], Ref) or node.spec.dtype != "float32" or node.kwargs:
        return None
    window, (stride, padding, *rest) = _each(node.args[1], rank), [*node.args[2:], *[None] * 5][:5]
    dilation, ceiling = rest[:2] if kind == "max" else (1, rest[0])
    divisor = rest[2] if kind == "avg" else None
    if _each(stride or window, rank) != window or any(_each(padding or 0, rank)) or ceiling or divisor:
        return None
    if _each(dilation or 1, rank) != [1] * rank or not 1 < prod(window) <= WIDEST:
        return None
    return [Node(node.name, f"aten.windows_{kind}.default", (node.args[0], window), {}, node.outputs)]


def winograd(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """Of a convolution by windows of 3 x 3 four neighbouring results come of 16 products instead of 36."""
    if node.op != "aten.conv2d.default" or node.spec.dtype != "float32" or len(node.spec.shape) != 4:
        return None
    x, weight, bias, stride, padding, dilation, groups = [*node.args, *[None] * 5][:7]
    pad = _each(padding or 0, 2)
    plain = _each(stride or 1, 2) == _each(dilation or 1, 2) == [1, 1] and (groups or 1) == 1 and pad[0] == pad[1]
    out, channels, *window = known[weight.node].shape
    if not plain or window != [3, 3] or not FEWEST <= channels <= MOST or out < FEWEST or min(node.spec.shape[2:]) < 8:
        return None
    return [Node(node.name, f"aten.{WINOGRAD}.default", (x, weight, bias, pad[0]), {}, node.outputs)]


def transposed_2d(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """oneDNN writes the result with channels last; a kernel that reads it so spares the copy into another layout."""
    if names(node.op)[0] != "conv_transpose2d" or len(node.spec.shape) != 4 or node.spec.dtype != "float32":
        return None
    stride = _each(node.args[3] if len(node.args) > 3 else 1, 2)
    if max(stride) == 1:
        return None
    w, (batch, channels, height, width) = Writer(node, known), node.spec.shape
    given = known[node.args[0].node].shape
    x = w.call("permute.default", node.args[0], [0, 2, 3, 1], shape=(given[0], *given[2:], given[1]))
    last = w.call("conv_transpose2d_last.input", x, *node.args[1:], shape=(batch, height, width, channels))
    w.call("permute.default", last, [0, 3, 1, 2], shape=node.spec.shape, name=node.name)
    return w.calls


def transposed_3d(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """Of a result every stride-th element rests on the same elements of the weight: a plain convolution with these.

    Result o rests on input i and weight k where o = i * stride + k - padding; with o + padding = stride * q + r that
    is k = stride * m + r and i = q - m.
    """
    if names(node.op)[0] != "conv_transpose3d" or len(node.spec.shape) != 5 or node.spec.dtype != "float32":
        return None
    x, weight, bias, stride, padding, _, groups, dilation = [*node.args, *[None] * 7][:8]
    step, edge = _each(stride or 1, 3), _each(padding or 0, 3)
    kernel, shape = known[weight.node].shape[2:], node.spec.shape
    whole = all(n % s == 0 and k >= s for n, s, k in zip(shape[2:], step, kernel, strict=True))
    if (groups or 1) != 1 or _each(dilation or 1, 3) != [1, 1, 1] or max(step) == 1 or not whole:
        return None
    w, counts = Writer(node, known), [n // s for n, s in zip(shape[2:], step, strict=True)]
    sizes = (known[x.node].shape, known[weight.node].shape)
    parts = []
    for place in product(*map(range, step)):
        taps = [_taps(*one) for one in zip(place, step, edge, kernel, counts, sizes[0][2:], strict=True)]
        parts.append(_phase(w, (x, weight, bias), sizes, step, taps, (*shape[:2], *counts)))
    order = [3, 4, 5, 0, 6, 1, 7, 2]
    digits = (*step, *shape[:2], *counts)
    stacked = w.call("stack.default", parts, 0, shape=(len(parts), *shape[:2], *counts))
    phases = w.call("view.default", stacked, list(digits), shape=digits)
    woven = w.call("permute.default", phases, order, shape=[digits[d] for d in order])
    w.call("reshape.default", woven, list(shape), shape=shape, name=node.name)
    return w.calls


Taps = tuple[int, int, int, int]
"""Of a phase along one dimension: the first element of the weight, how many, and what the input lacks on both sides."""


def _taps(place: int, stride: int, padding: int, kernel: int, count: int, size: int) -> Taps:
    first, skipped = (place + padding) % stride, (place + padding) // stride
    many = -(-(kernel - first) // stride)
    return first, many, many - 1 - skipped, count + skipped - size


def _phase(
    w: Writer,
    of: tuple[Ref, Ref, Ref | None],
    sizes: tuple[Shape, Shape],
    step: list[int],
    taps: list[Taps],
    shape: Shape,
) -> Ref:
    """The convolution of one phase: the input padded or cut, the weight's elements of the phase turned round."""
    (x, weight, bias), (given, weights) = of, list(sizes)
    sides = [n for _, _, left, right in reversed(taps) for n in (left, right)]
    if any(sides):
        grown = [n + left + right for n, (_, _, left, right) in zip(given[2:], taps, strict=True)]
        x = w.call("constant_pad_nd.default", x, sides, 0.0, shape=(*given[:2], *grown))
    for d, (first, many, _, _) in enumerate(taps, 2):
        weights = (*weights[:d], many, *weights[d + 1 :])
        weight = w.call("slice.Tensor", weight, d, first, None, step[d - 2], shape=weights)
    turned = w.call("flip.default", weight, [2, 3, 4], shape=weights)
    swapped = (weights[1], weights[0], *weights[2:])
    return w.call("conv3d.default", x, w.call("transpose.int", turned, 0, 1, shape=swapped), bias, shape=shape)


def _each(value: Any, rank: int) -> list[int]:
    """A number a dimension."""
    return [value] * rank if isinstance(value, int) else list(value) * (rank if len(value) == 1 else 1)
