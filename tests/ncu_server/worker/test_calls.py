"""What a problem's functions give, read as the call that it stands for."""

from collections.abc import Callable
from typing import Any

import pytest

from ncu_server.worker.calls import readings


def width_gain(width: Any, gain: Any) -> None: ...
def sizes_names(sizes: Any, names: Any) -> None: ...
def optional(dim: int = 1, eps: float = 1e-5) -> None: ...
def typed(sizes: list[int], names: dict[str, int] | None = None) -> None: ...
def defaulted(sizes: Any = (1,), names: Any = None) -> None: ...
def nothing() -> None: ...
def anything(*args: Any, **kwargs: Any) -> None: ...
def batch(batch: Any) -> None: ...
def keyed(x: Any, *, mask: Any) -> None: ...
def one(x: Any, scale: Any = 1) -> None: ...


@pytest.mark.parametrize(
    ("function", "given", "calls"),
    [
        # A list of both, as KernelBook has it, where the names are the function's.
        (width_gain, [[], {"width": 64, "gain": 3}], [([], {"width": 64, "gain": 3})]),
        (width_gain, [[64], {"gain": 3}], [([64], {"gain": 3})]),
        (width_gain, ((64, 3), {}), [([64, 3], {}), ([(64, 3), {}], {})]),
        (nothing, [[], {}], [([], {})]),
        (optional, [[], {}], [([], {}), ([[], {}], {})]),
        (anything, [[3], {"a": 1}], [([3], {"a": 1}), ([[3], {"a": 1}], {})]),
        # A list and a dict that are the arguments themselves.
        (sizes_names, [[], {}], [([[], {}], {})]),
        (sizes_names, [[1, 2, 3], {"a": 1}], [([[1, 2, 3], {"a": 1}], {})]),
        (typed, [[1, 2], {}], [([[1, 2], {}], {}), ([1, 2], {})]),
        (defaulted, [[1, 2], {}], [([[1, 2], {}], {}), ([1, 2], {})]),
        # By place, by keyword, or one thing.
        (width_gain, [64, 3], [([64, 3], {})]),
        (width_gain, {"width": 64, "gain": 3}, [([], {"width": 64, "gain": 3})]),
        (keyed, [5, {"mask": 1}], [([5], {"mask": 1})]),
        (one, [5, {"scale": 1}], [([5, {"scale": 1}], {})]),
        (batch, {"x": 1, "y": 2}, [([{"x": 1, "y": 2}], {})]),
        (batch, [{"x": 1}], [([{"x": 1}], {})]),
        (batch, 7, [([7], {})]),
        (nothing, None, [([], {})]),
        # What fits nothing is called as it stands, so that Python says what is wrong with it.
        (nothing, [1, 2], [([1, 2], {})]),
    ],
)
def test_what_is_given_is_read_as_the_signature_takes_it(
    function: Callable[..., Any], given: Any, calls: list[Any]
) -> None:
    assert readings(function, given) == calls
