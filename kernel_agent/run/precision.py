"""How exact an output has to be, and the ways to compute products that are: values, as the server measured them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ErrorUnit:
    """How exact an output has to be on one kind of `inputs` (as drawn, hard, far): the size of a unit of error and the
    root mean square of the output, in its own values; the reference's largest error and what is allowed, in units."""

    output: str
    inputs: str
    unit: float
    rms: float
    reference: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Way:
    """A way to compute a problem's float32 products: the error that is predicted, in units, None out of its range;
    whether it `fits` (inside, near, outside); the time that no kernel by it goes below; the output and the inputs on
    which it errs most of what is allowed, and its error by output, empty in runs of before."""

    name: str
    error: float | None
    fits: str
    limit_us: float | None
    output: str = ""
    inputs: str = ""
    errors: Mapping[str, float | None] = field(default_factory=dict)
