"""What each reduction and normalisation of ATen computes, in terms of folds over the last dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.values import Fold, Value, apply, fold, reshape

Dims = Sequence[int] | int | None
EPSILON = {"float32": 1.1920928955078125e-07, "float16": 0.0009765625, "bfloat16": 0.0078125}  # torch.finfo(dtype).eps


def total(op: str, x: Value, dims: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return fold("sum", x, _dims(dims), keepdim, op)


def mean(op: str, x: Value, dims: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    summed = fold("sum", x, _dims(dims), keepdim, op)
    assert isinstance(summed, Fold)
    return summed * (1 / summed.count)


def largest(op: str, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    return fold("max", x, _dims(dims), keepdim, op)


def smallest(op: str, x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    return fold("min", x, _dims(dims), keepdim, op)


def largest_and_place(op: str, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    value = largest(op, x, dim, keepdim)
    return value if dim is None else (value, None)


def smallest_and_place(op: str, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    value = smallest(op, x, dim, keepdim)
    return value if dim is None else (value, None)


def variance(
    op: str, x: Value, dims: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None
) -> Value:
    if isinstance(dims, bool):  # the overload without dims: var(x, unbiased)
        dims, unbiased = None, dims
    away = x - mean(op, x, dims, True)
    squares = fold("sum", away * away, _dims(dims), keepdim, op)
    assert isinstance(squares, Fold)
    freedom = squares.count - (int(unbiased) if correction is None else correction)
    return squares / max(freedom, 0)


def deviation(op: str, x: Value, *args: Any, **kwargs: Any) -> Value:
    return apply("sqrt", variance(op, x, *args, **kwargs))


def softmax(op: str, x: Value, dim: int, dtype: Any = None) -> Value:
    grown = apply("exp", x - largest(op, x, dim, True))
    return grown / total(op, grown, dim, True)


def log_softmax(op: str, x: Value, dim: int, dtype: Any = None) -> Value:
    away = x - largest(op, x, dim, True)
    return away - apply("log", total(op, apply("exp", away), dim, True))


def logsumexp(op: str, x: Value, dims: Dims, keepdim: bool = False) -> Value:
    top = largest(op, x, dims, True)
    shift = apply("where", apply("eq", apply("abs", top), inf), 0, top)
    summed = apply("log", total(op, apply("exp", x - shift), dims, keepdim))
    return summed + reshape(shift, summed.shape)


def vector_norm(
    op: str, x: Value, order: float = 2, dims: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    if order == 2:
        return apply("sqrt", total(op, x * x, dims, keepdim))
    if order == 1:
        return total(op, apply("abs", x), dims, keepdim)
    if order == inf:
        return largest(op, apply("abs", x), dims, keepdim)
    raise NotCovered(f"templates know {op} of order 1, 2 and infinity only.")


def layer_norm(
    op: str,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _: Any = None,
) -> Value:
    return _affine(_standard(op, x, list(range(-len(shape), 0)), eps), weight, bias)


def rms_norm(op: str, x: Value, shape: Sequence[int], weight: Value | None = None, eps: float | None = None) -> Value:
    squares = mean(op, x * x, list(range(-len(shape), 0)), True)
    return _affine(x * apply("rsqrt", squares + (EPSILON["float32"] if eps is None else eps)), weight, None)


def group_norm(
    op: str,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _: Any = None,
) -> Value:
    rows = x.shape[0] * groups
    standard = reshape(_standard(op, reshape(x, (rows, prod(x.shape) // rows)), -1, eps), x.shape)
    tail = (1,) * (len(x.shape) - 2)
    return _affine(standard, *(w and reshape(w, (x.shape[1], *tail)) for w in (weight, bias)))


def mse_loss(op: str, x: Value, y: Value, reduction: int = 1) -> Value:
    squares = (x - y) * (x - y)
    return (squares, mean(op, squares), total(op, squares))[reduction]


def l1_loss(op: str, x: Value, y: Value, reduction: int = 1) -> Value:
    away = apply("abs", x - y)
    return (away, mean(op, away), total(op, away))[reduction]


def smooth_l1_loss(op: str, x: Value, y: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    away = apply("abs", x - y)
    small = away * away * (0.5 / beta) if beta else away
    each = apply("where", apply("lt", away, beta), small, away - 0.5 * beta)
    return (each, mean(op, each), total(op, each))[reduction]


def _standard(op: str, x: Value, dims: Dims, eps: float) -> Value:
    away = x - mean(op, x, dims, True)
    return away * apply("rsqrt", mean(op, away * away, dims, True) + eps)


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


def _dims(dims: Dims) -> Sequence[int] | None:
    return [dims] if isinstance(dims, int) else dims


ROWWISE: dict[str, Callable[..., Any]] = {
    "sum": total,
    "mean": mean,
    "amax": largest,
    "amin": smallest,
    "max": largest_and_place,
    "min": smallest_and_place,
    "var": variance,
    "std": deviation,
    "softmax": softmax,
    "_softmax": softmax,
    "log_softmax": log_softmax,
    "_log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "linalg_vector_norm": vector_norm,
    "norm": vector_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "mse_loss": mse_loss,
    "l1_loss": l1_loss,
    "smooth_l1_loss": smooth_l1_loss,
}
