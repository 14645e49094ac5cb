"""Whether a reference says what comes of NaN: where each way to treat it that kernels have gives the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ncu_server.worker import private
from ncu_server.worker.dispatch import Watch
from ncu_server.worker.tensors import flatten

tree_map = private.take("torch.utils._pytree.tree_map")
# Operators of which kernels make of NaN what their minimum, maximum or comparison does: a number, or another branch.
CHOOSING = {
    *("maximum", "minimum", "fmax", "fmin", "max", "min", "amax", "amin", "aminmax", "cummax", "cummin", "clamp"),
    *("clamp_min", "clamp_max", "clip", "relu", "relu6", "hardtanh", "threshold", "hardswish", "hardsigmoid"),
    *("hardshrink", "softshrink", "leaky_relu", "prelu", "_prelu_kernel", "elu", "celu", "selu", "log_sigmoid_forward"),
    *("softplus", "where", "masked_fill", "sign", "sgn", "sort", "topk", "kthvalue", "median", "nanmedian", "nansum"),
    *("argmax", "argmin", "argsort", "mode", "bucketize", "searchsorted", "unique", "histc", "nan_to_num", "round"),
    *("floor", "ceil", "trunc", "lt", "le", "gt", "ge", "eq", "ne", "_to_copy", "logical_and", "logical_or"),
    *(f"{how}max_pool{d}d{more}" for how in ("", "adaptive_") for d in (1, 2, 3) for more in ("", "_with_indices")),
}
NUMBERS = (0.0, 1e4, -1e4)  # that stand for whatever a comparison takes NaN for


class Chosen(Watch):
    """Operators that choose find a number where NaN was."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = func.overloadpacket.__name__, kwargs or {}
        if name.rstrip("_") not in CHOOSING:
            return func(*args, **named)
        if name.endswith("_"):
            _with_number(args[0], self._number, torch.Tensor.copy_)
            return func(args[0], *tree_map(self._chosen, args[1:]), **tree_map(self._chosen, named))
        return func(*tree_map(self._chosen, args), **tree_map(self._chosen, named))

    def _chosen(self, value: Any) -> Any:
        return _with_number(value, self._number, lambda _, made: made)


def _with_number(value: Any, number: float, kept: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.element_size() == 1:
        return value
    return kept(value, value.nan_to_num(number, torch.inf, -torch.inf))


def shows(run: Callable[[Any], Any], numbers: Any, holes: Any) -> bool:
    """Whether NaN among the inputs must show in the output, whatever an honest kernel's comparisons do with it: some
    elements are the same for all ways to treat it, and others than for the inputs with numbers.

    `run` gives the output for a tree of inputs.
    """
    without, plain = (flatten(run(inputs))[1] for inputs in (numbers, holes))
    same = [_unlike(a, b) for a, b in zip(without, plain, strict=True)]
    for number in NUMBERS:
        with Chosen(number):
            treated = flatten(run(holes))[1]
        same = [must & ~_unlike(a, b) for must, a, b in zip(same, plain, treated, strict=True)]
    return any(bool(must.any()) for must in same)


def _unlike(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two outputs differ, NaN being like NaN."""
    if not (one.is_floating_point() or one.is_complex()):
        return one != other
    a, b = (t.float() if t.element_size() == 1 else t for t in (one, other))
    return (a != b) & ~(torch.isnan(a) & torch.isnan(b))
