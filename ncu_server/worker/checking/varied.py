"""Whether a reference takes another plain value among its inputs, and what that value is to it: a number or a size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from ncu_server.worker.answers import Chosen
from ncu_server.worker.checking.tolerance import alike, finite
from ncu_server.worker.dispatch import Watch
from ncu_server.worker.problem import MISREAD
from ncu_server.worker.tensors import flatten, real, spec_of

FAILS = "the reference fails with others"
Calls = list[tuple[str, list[Any]]]
"""Operators in the order in which they ran, each with those arguments that can only be dimensions, sizes or places."""


class Recorded(Watch):
    """Keeps the calls of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Calls = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named, declared = kwargs or {}, func._schema.arguments
        given = [args[i] if i < len(args) else named.get(one.name) for i, one in enumerate(declared)]
        sizes = [value for value, one in zip(given, declared, strict=True) if "int" in str(one.type).lower()]
        self.calls.append((str(func), sizes))
        return func(*args, **named)


def chosen(run: Callable[[Any], Any], given: Any, others: list[Any]) -> Chosen:
    """Which of the `others` the reference takes in place of what is `given`, one that changes its output before others:
    `taken` is its place; None, and `why` says why, where it takes none. `run` gives the output."""
    first, calls = recorded(lambda: run(given))
    whys, taken = [], []
    for place, other in enumerate(others):
        try:
            out, those = recorded(functools.partial(run, other))
        except MISREAD:
            whys.append(FAILS)
            continue
        if why := refused(first, calls, out, those):
            whys.append(why)
        else:
            taken.append((not differs(first, out), place))
    return {"taken": min(taken)[1] if taken else None, "why": next((why for why in whys if why != FAILS), FAILS)}


def other_size(calls: Calls, others: Calls) -> bool:
    """Whether two runs part at one operator with another dimension, size or place, and not at another operator."""
    for one, other in zip_longest(calls, others):
        if one != other:
            return one is not None and other is not None and one[0] == other[0]
    return False


def refused(first: Any, calls: Calls, out: Any, others: Calls) -> str:
    """In words, why an output does not do in a further check; empty where it does."""
    (tree, tensors), (other_tree, made) = flatten(first), flatten(out)
    layouts = [[(t["shape"], t["dtype"]) for t in spec_of(None, each)["tensors"]] for each in (tensors, made)]
    if _form(tree) != _form(other_tree) or layouts[0] != layouts[1]:
        return "others change the form of the output"
    if finite(list(map(real, tensors))) and not finite(list(map(real, made))):
        return "the reference gives no numbers with others"
    return "it chooses a dimension or a size" if other_size(calls, others) else ""


def _form(tree: Any) -> Any:
    """The tree without its plain values."""
    if isinstance(tree, dict):
        return {kind: None if kind == "value" else _form(body) for kind, body in tree.items()}
    return [_form(one) for one in tree] if isinstance(tree, list) else tree


def differs(first: Any, out: Any) -> bool:
    """Whether two outputs are told apart by more than rounding."""
    pairs = zip(flatten(first)[1], flatten(out)[1], strict=True)
    return not all(alike(real(one), real(other)) for one, other in pairs)


def recorded(call: Any) -> tuple[Any, Calls]:
    """What a call gives, and the operators that it runs."""
    with Recorded() as record:
        out = call()
    return out, record.calls
