"""What a model is made and called with and what it gives, as data: shapes, dtypes, strides, structures, values."""

from __future__ import annotations

import copy
import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ncu_server.worker import records
from ncu_server.worker.answers import CallContract
from ncu_server.worker.building.modules import Arguments
from ncu_server.worker.calls import Call, called, signature_of
from ncu_server.worker.checking.effects import same
from ncu_server.worker.tensors import flatten

# What a model raises that cannot be called in a mode that is not its own.
UNFIT = (RuntimeError, ValueError, TypeError, LookupError, AssertionError)
PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in a structure that is none; `number` counts those that are no tensors, in the order given."""

    value: Any
    number: int = -1


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a dataclass, or of an object whose attributes are data."""

    fields: dict[str, Any]


def contract(model: torch.nn.Module, arguments: Arguments, call: Call, kept: Collection[int]) -> CallContract:
    """One call as data; `kept` are the numbers of the plain values that no check varies.

    `takes` and `gives` list its tensors in order (`shape`, `dtype`, and `strides` in elements of what it takes),
    `leaves` the kinds of all inputs (`tensor`, `int`, `none`, ...), `held` the value of each that is kept (null else;
    what is no plain value, such as a dtype, as text). `form` and `returns` are structures: None a leaf, else
    `["list" | "tuple", [...]]`, `["dict", {...}]` or, of a record, `["record", {...}]`; `is_plain` says whether lists,
    tuples and dicts are all they are made of. `parameters` are those and buffers by name; `made` is the constructor's
    arguments where they are literals; `mode` says whether the model trains, null where that changes nothing.
    """
    tokens = _ordered(model, _tokens(call, iter(range(1 << 20))))
    given = list(_leaves(tokens))
    mode = model.training if _hangs_on_mode(model, call) else None
    with torch.no_grad():
        out = called(model, call)
    made = list(_leaves(out))
    return {
        "takes": [_tensor(t.value) | {"strides": list(t.value.stride())} for t in given if _is_tensor(t.value)],
        "gives": [_tensor(t) for t in made if _is_tensor(t)],
        "leaves": [_kind(leaf.value) for leaf in given],
        "held": [[_text(leaf.value)] if leaf.number in kept else None for leaf in given],
        "form": _form(tokens),
        "returns": _form(out),
        "is_plain": all(map(_is_tensor, made)) and _is_exact(call) and _is_exact(out),
        "parameters": {name: _tensor(t) for name, t in (*model.named_parameters(), *model.named_buffers())},
        "made": _literal(arguments[:2]),
        "mode": mode,
    }


def _hangs_on_mode(model: torch.nn.Module, call: Call) -> bool:
    """Whether training changes what a call gives or leaves behind."""
    seen = []
    for mode in (True, False):
        twin = copy.deepcopy(model).train(mode)
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                out = called(twin, call)
        except UNFIT:
            return True
        seen.append([*flatten(out)[1], *twin.buffers()])
    return len(seen[0]) != len(seen[1]) or not all(same(one, other) for one, other in zip(*seen, strict=True))


def _ordered(model: torch.nn.Module, call: tuple[Any, dict[str, Any]]) -> tuple[list[Any], dict[str, Any]]:
    """By position what `forward` takes so, and keywords in its order, as delivered files read a call."""
    args, kwargs = list(call[0]), dict(call[1])
    signature = signature_of(model.forward)
    taken = list(signature.parameters.values()) if signature else []
    places = [one.name for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    while len(args) < len(places) and places[len(args)] in kwargs:
        args.append(kwargs.pop(places[len(args)]))
    names = [one.name for one in taken if one.name in kwargs]
    return args, {name: kwargs[name] for name in dict.fromkeys([*names, *kwargs])}


def _tokens(value: Any, numbers: Iterator[int]) -> Any:
    """The structure with a Leaf for each value in it."""
    if (fields := _fields(value)) is not None:
        return Record({name: _tokens(one, numbers) for name, one in fields.items()})
    if isinstance(value, list | tuple):
        inner = [_tokens(one, numbers) for one in value]
        return inner if isinstance(value, list) else tuple(inner)
    if isinstance(value, dict):
        return {name: _tokens(one, numbers) for name, one in value.items()}
    return Leaf(value) if _is_tensor(value) else Leaf(value, next(numbers))


def _fields(value: Any) -> dict[str, Any] | None:
    """Those of a dataclass, or the attributes of an object that is data; None for all else."""
    form, fields = records.parts(value) or ("", [])
    return dict(fields) if form in ("dataclass", "object") else None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, dict):
        yield from (leaf for one in value.values() for leaf in _leaves(one))
    elif isinstance(value, Record):
        yield from _leaves(value.fields)
    else:
        yield value


def _form(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return ["list" if isinstance(value, list) else "tuple", [_form(one) for one in value]]
    if isinstance(value, dict):
        return ["dict", {str(name): _form(one) for name, one in value.items()}]
    return ["record", _form(value.fields)[1]] if isinstance(value, Record) else None


def _is_exact(value: Any) -> bool:
    """Whether containers are lists, tuples and dicts of strings themselves, so that their form makes them again."""
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(_is_exact, value))
    if isinstance(value, dict):
        return type(value) is dict and all(isinstance(k, str) and _is_exact(v) for k, v in value.items())
    return _fields(value) is None


def _literal(value: Any) -> Any:
    """The value where JSON gives it back as it is, else None."""
    plain = all(isinstance(leaf, PLAIN) for leaf in _leaves(value)) and _is_exact(value)
    return [list(value[0]), dict(value[1])] if plain else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _kind(leaf: Any) -> str:
    if _is_tensor(leaf):
        return "tensor"
    if isinstance(leaf, enum.Enum):
        return "enum"
    return "none" if leaf is None else type(leaf).__name__


def _text(leaf: Any) -> Any:
    """A plain value as it is, another one as text: a function by its name."""
    return leaf if isinstance(leaf, PLAIN) else str(getattr(leaf, "__name__", leaf))


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
