"""What a graph computes, as values over the leaves: loads, views, pointwise functions and folds of tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from kernel_agent.proposers.templates.graph import Leaf, Shape
from kernel_agent.proposers.templates.strides import Pattern, broadcast, normal

FoldKind = Literal["sum", "max", "min"]


class Value:
    """Anything with a shape. Arithmetic between values and numbers makes pointwise values of the broadcast shape."""

    __slots__ = ()
    shape: Shape

    def __add__(self, other: Operand) -> Value:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self if other == 1 else apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self if other == 1 else apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self if other == 1 else apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return apply("div", other, self)

    def __neg__(self) -> Value:
        return apply("neg", self)


Operand = Value | float


@dataclass(frozen=True, eq=False, slots=True)
class Number(Value):
    """A number known when the kernel is written."""

    value: float
    shape: Shape = ()


@dataclass(frozen=True, eq=False, slots=True)
class Load(Value):
    """The elements of a leaf from `offset` on."""

    leaf: Leaf
    shape: Shape
    offset: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class View(Value):
    """The elements of `base` at other places: element i is element offset + pattern(i) of it."""

    base: Value
    pattern: Pattern
    shape: Shape
    offset: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Apply(Value):
    """A pointwise function of values that broadcast to its shape."""

    function: str
    args: tuple[Value, ...]
    shape: Shape


@dataclass(frozen=True, eq=False, slots=True)
class Fold(Value):
    """The sum, maximum or minimum of each `count` neighbours of `base`. `op` is the operator it came from.

    `order` maps the elements of `base` to those of the tensor before its folded dimensions were made the last.
    """

    kind: FoldKind
    base: Value
    count: int
    shape: Shape
    op: str
    order: Pattern


def lift(operand: Operand) -> Value:
    """A value as it is, a number as one of no dimensions."""
    return operand if isinstance(operand, Value) else Number(float(operand))


def apply(function: str, *operands: Operand) -> Value:
    """A pointwise function of the operands, of the shape that they broadcast to."""
    args = tuple(lift(operand) for operand in operands)
    rank = max(len(a.shape) for a in args)
    padded = [(1,) * (rank - len(a.shape)) + a.shape for a in args]
    shape = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True))
    return Apply(function, args, shape)


def reshape(value: Value, shape: Sequence[int]) -> Value:
    """The same elements in the same order under another shape."""
    target = tuple(shape)
    return value if target == value.shape else View(value, normal([(prod(target), 1)]), target)


def fit(value: Value, shape: Shape) -> Value:
    """The value broadcast to a shape."""
    if isinstance(value, Number) or value.shape == shape:
        return value
    return View(value, broadcast(value.shape, shape), shape)


def permute(value: Value, order: Sequence[int]) -> Value:
    """The value with its dimensions in another order."""
    strides = [prod(value.shape[i + 1 :]) for i in range(len(value.shape))]
    shape = tuple(value.shape[i] for i in order)
    return View(value, normal((value.shape[i], strides[i]) for i in order), shape)


def narrow(value: Value, dim: int, start: int, length: int, step: int = 1) -> Value:
    """Every `step`th of a value's elements along one dimension, `length` of them."""
    strides = [prod(value.shape[i + 1 :]) for i in range(len(value.shape))]
    shape = (*value.shape[:dim], length, *value.shape[dim + 1 :])
    steps = [stride * (step if d == dim else 1) for d, stride in enumerate(strides)]
    return View(value, normal(zip(shape, steps, strict=True)), shape, start * strides[dim])


def fold(kind: FoldKind, value: Value, dims: Sequence[int] | None, keepdim: bool, op: str) -> Value:
    """Fold over some dimensions. No dims (None or empty) means all of them."""
    rank = len(value.shape)
    chosen = {d % rank for d in dims} if dims else set(range(rank))
    wide = [d for d in range(rank) if value.shape[d] != 1]
    reduced = [d for d in wide if d in chosen]
    kept = tuple(1 if d in chosen else n for d, n in enumerate(value.shape) if keepdim or d not in chosen)
    count = prod(value.shape[d] for d in chosen)
    order = normal([(prod(value.shape), 1)])
    if reduced != wide[len(wide) - len(reduced) :]:
        value = permute(value, [*(d for d in range(rank) if d not in chosen), *sorted(chosen)])
        assert isinstance(value, View)
        order = value.pattern
    return Fold(kind, value, count, kept, op, order)
