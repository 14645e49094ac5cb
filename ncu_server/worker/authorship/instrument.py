"""The functions of a candidate's own libraries: marked on the profiler's timeline, counted, or silenced.

They are wrapped where the candidate keeps them, as far as the collector tells where that is: not in tuples or partials,
which cannot be changed, nor in objects without a dictionary.
"""

from __future__ import annotations

import gc
import math
import secrets
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

import torch
import tvm_ffi

from ncu_server.worker import private
from ncu_server.worker.tensors import SCALARS

_RecordFunctionFast = private.take("torch._C._profiler._RecordFunctionFast")


class Watch:
    """Marks calls of the candidate's own functions on the timeline, counts those begun and done, or silences them."""

    def __init__(self) -> None:
        token = secrets.token_hex(8)
        self.call, self.own = f"call {token}", f"own {token}"
        self.started = self.done = 0
        self.silent = False
        self._returned: list[Any] = []
        self._told = 0

    def note(self, out: Any, arguments: tuple[Any, ...]) -> None:
        """Remember of what kind a function's answer was, for its place among all calls."""
        self._returned.append(_sketch(out, arguments))

    def answer(self, arguments: tuple[Any, ...]) -> Any:
        """What a silenced function answers: of the kind that was noted for its place, its tensors without values."""
        self._told += 1
        return _drawn(self._returned[self._told - 1], arguments) if self._told <= len(self._returned) else None

    def rewind(self) -> None:
        """The next model's calls come from the first place on; nothing more is noted while it is silent."""
        self._told = 0
        if not self.silent:
            self._returned = []

    def over(self, libraries: Collection[Any], module: ModuleType, model: torch.nn.Module) -> None:
        """Wrap the functions of loaded libraries wherever the candidate keeps them: by name, in a cell or in a list. A
        library of operators, which is but a path, has none."""
        libraries = [one for one in libraries if not isinstance(one, str)]
        owners = [module, *model.modules()]
        known = _containers([vars(owner) for owner in (*libraries, *owners)])
        for library in libraries:
            for name, function in list(vars(library).items()):
                if callable(function) and not name.startswith("__") and not isinstance(function, type | Own):
                    _replace(function, Own(function, self), known)
        for container in known:
            for function in list(container.values() if isinstance(container, dict) else container):
                if isinstance(function, tvm_ffi.Function):
                    _replace(function, Own(function, self), known)


class Own:
    """A function of the candidate's library that leaves a mark when it is called."""

    __slots__ = ("_function", "_watch")

    def __init__(self, function: Callable[..., Any], watch: Watch) -> None:
        self._function, self._watch = function, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._watch.silent:
            return self._watch.answer(args)
        self._watch.started += 1
        with _RecordFunctionFast(self._watch.own):
            out = self._function(*args, **kwargs)
        self._watch.done += 1
        self._watch.note(out, args)
        return out


def _sketch(out: Any, arguments: tuple[Any, ...]) -> Any:
    """What `_drawn` makes an answer of: a place among the arguments, a tensor's layout, a plain value, or several."""
    if isinstance(out, torch.Tensor):
        for place, given in enumerate(arguments):
            if isinstance(given, torch.Tensor) and (given.data_ptr(), given.shape) == (out.data_ptr(), out.shape):
                return "argument", place
        return "tensor", (out.shape, out.stride(), out.dtype, out.device)
    if isinstance(out, list | tuple):
        return "several", (type(out), [_sketch(one, arguments) for one in out])
    return "value", out if isinstance(out, SCALARS) else None


def _drawn(sketch: Any, arguments: tuple[Any, ...]) -> Any:
    match sketch:
        case "argument", place:
            return arguments[place] if place < len(arguments) else None
        case "tensor", (shape, stride, dtype, device):
            made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            return made.fill_(math.nan if dtype.is_floating_point and made.element_size() > 1 else 0)
        case "several", (kind, parts):
            made = [_drawn(one, arguments) for one in parts]
            return made if kind is list else tuple(made)
        case _, value:
            return value


def _containers(roots: list[Any]) -> list[Any]:
    """Dicts and lists that are reached from the roots through dicts, lists and tuples.

    The collector alone does not know them all: it stops tracking dicts whose values are no containers.
    """
    found: dict[int, Any] = {}
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in found or not isinstance(one, dict | list | tuple):
            continue
        found[id(one)] = one
        waiting += one.values() if isinstance(one, dict) else one
    return [one for one in found.values() if not isinstance(one, tuple)]


def _replace(old: Any, new: Any, known: list[Any]) -> None:
    # No comprehension here: before Python 3.12 it keeps `old` in a cell of ours, which would be replaced too.
    for holder in [*known, *gc.get_referrers(old)]:
        if isinstance(holder, dict | list):
            for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
                if value is old:
                    holder[key] = new
        elif type(holder).__name__ == "cell":
            holder.cell_contents = new
