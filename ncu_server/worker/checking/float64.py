"""Running a model in another precision than the one it asks for, the dtypes named in its own code included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

SINGLE_TO_DOUBLE: Mapping[Any, Any] = {
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.FloatTensor: torch.DoubleTensor,
    torch.cuda.FloatTensor: torch.cuda.DoubleTensor,
    "torch.FloatTensor": "torch.DoubleTensor",
    "torch.cuda.FloatTensor": "torch.cuda.DoubleTensor",
    torch.Tensor.float: torch.Tensor.double,
    torch.Tensor.cfloat: torch.Tensor.cdouble,
}
# What draws numbers: from one state of a generator other ones in each dtype.
DRAWS = {"rand", "randn", "rand_like", "randn_like", "normal", "bernoulli", "multinomial"}
DRAWS |= {"uniform_", "normal_", "bernoulli_", "exponential_", "cauchy_", "log_normal_", "geometric_"}


class Recast(TorchFunctionMode):  # type: ignore[misc]
    """Inside, requests for one dtype are answered in another, and so is the default dtype; half precision stays.

    Bits (`view` as another dtype) and random numbers are those of the dtype asked for. Where `tensors`, which the model
    is given, have the other dtype nowhere, a tensor answers for the dtype asked for, so that torch.finfo does too.
    """

    def __init__(self, answers: Mapping[Any, Any], tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._answers = answers
        given = {t.dtype for t in tensors}
        own = {asked: other for asked, other in answers.items() if isinstance(asked, torch.dtype)}
        self._asked = {} if given & set(own.values()) else {other: asked for asked, other in own.items()}

    def __enter__(self) -> Recast:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(self._answers.get(self._default, self._default))
        super().__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        super().__exit__(*fault)
        torch.set_default_dtype(self._default)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if _literal(func, (*args, *named.values())):
            return self._as_asked(func, args, named)
        given, keywords = _changed(self._answer, args, named)
        out = self._answers.get(func, func)(*given, **keywords)
        return self._asked.get(out, out) if isinstance(out, torch.dtype) else out

    def _answer(self, value: Any) -> Any:
        return self._answers.get(value, value) if isinstance(value, torch.dtype | type | str) else value

    def _as_asked(self, func: Any, args: Any, named: Mapping[str, Any]) -> Any:
        """What the model would have got, in the other dtype; what is filled in place is given the same values."""
        given, keywords = _changed(lambda value: _cast(value, self._asked), args, named)
        other = torch.get_default_dtype()
        torch.set_default_dtype(self._default)
        try:
            out = func(*given, **keywords)
        finally:
            torch.set_default_dtype(other)
        filled = args[0] if func.__name__.endswith("_") and args else named.get("tensor", named.get("out"))
        return _cast(out, self._answers) if filled is None else filled.copy_(out)


def _literal(func: Any, values: Iterable[Any]) -> bool:
    """Whether a call asks for bits or for random numbers."""
    if func is torch.Tensor.view:
        return any(isinstance(value, torch.dtype) for value in values)
    return getattr(func, "__name__", "") in DRAWS


def _changed(change: Callable[[Any], Any], args: Any, named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return [change(value) for value in args], {key: change(value) for key, value in named.items()}


def _cast(value: Any, dtypes: Mapping[Any, Any]) -> Any:
    return value.to(dtypes.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value
