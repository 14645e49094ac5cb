"""What a model is called with and what it gives, as data: shapes, dtypes, strides and structures, no values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ncu_server.worker.calls import Call, called


def contract(model: torch.nn.Module, call: Call) -> dict[str, Any]:
    """One call as data; `parameters` are the shapes and dtypes of parameters and buffers by name.

    `takes` and `gives` list its tensors in order (`shape`, `dtype`, and `strides` in elements of what it takes),
    `leaves` the kinds of all inputs (`tensor`, `int`, `none`, ...). `form` and `returns` are structures: None a leaf,
    else `["list" | "tuple", [...]]` or `["dict", {...}]`; `is_plain` says whether that is all the outputs are made of.
    """
    given, form = list(_leaves(call)), _form(call)
    with torch.no_grad():
        out = called(model, call)
    made = list(_leaves(out))
    return {
        "takes": [_tensor(t) | {"strides": list(t.stride())} for t in given if isinstance(t, torch.Tensor)],
        "gives": [_tensor(t) for t in made if isinstance(t, torch.Tensor)],
        "leaves": [_kind(leaf) for leaf in given],
        "form": form,
        "returns": _form(out),
        "is_plain": all(isinstance(t, torch.Tensor) for t in made),
        "parameters": {name: _tensor(t) for name, t in (*model.named_parameters(), *model.named_buffers())},
    }


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) in (list, tuple):
        for one in value:
            yield from _leaves(one)
    elif type(value) is dict:
        yield from (leaf for one in value.values() for leaf in _leaves(one))
    else:
        yield value


def _form(value: Any) -> Any:
    if type(value) in (list, tuple):
        return [type(value).__name__, [_form(one) for one in value]]
    if type(value) is dict:
        return ["dict", {str(name): _form(one) for name, one in value.items()}]
    return None


def _kind(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return "tensor"
    return "none" if leaf is None else type(leaf).__name__


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
