"""What each way to compute a problem's products comes to, and the limit: that of the fastest that is exact enough."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from ncu_server.judge.input_set import OTHERS, InputSet
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.roofline import Limit, limit, moving_rate, moving_us, way_us
from ncu_server.rules import ways
from ncu_server.rules.precision import Precision
from ncu_server.wire import evaluation
from ncu_server.worker.answers import Work


def compared(prepared: PreparedProblem, drawn: InputSet) -> list[InputSet]:
    """Of one input shape the inputs as drawn, and the hard ones where there are some: sharper, or else far ones, which
    show what matters where an output is nearly all zeros on those that were drawn."""
    own = [one for one in prepared.input_sets if one.variant == drawn.variant]
    others = (one for how in OTHERS for one in own if one.how == how)
    return [drawn, *itertools.islice(others, 1)]


def kind_of(one: InputSet) -> evaluation.Inputs:
    """What a client is told of an input set."""
    return OTHERS.get(one.how, "as drawn")


async def ways_of(
    prepared: PreparedProblem, drawn: InputSet, work: Work, reached: evaluation.Peaks
) -> list[evaluation.WayResult]:
    """The ways of a GPU to compute the products of a call of one input shape, each by its worst prediction on any
    output and input set. ChildFault passes through."""
    if not prepared.target.hardware.has_nvidia_tools or drawn.product is None:
        return []
    cases = []
    for one in compared(prepared, drawn):
        if one.product:
            rows = itertools.zip_longest(zip(one.names, one.precision, strict=False), await prepared.moved(one))
            cases += [Case(one.product, row[1], row[0], kind_of(one), moved) for row, moved in rows if row and row[1]]
    return [row for way in ways.WAYS if (row := way_of(way, cases, way_us(work, reached, way.products)))]


class Case(NamedTuple):
    """The call's product on one input set, and how exact one output has to be there."""

    product: ways.Product
    precision: Precision
    output: str
    inputs: evaluation.Inputs
    moved: float | None = None


def way_of(way: ways.Way, cases: list[Case], limit_us: float | None) -> evaluation.WayResult | None:
    """What a way comes to by its worst case; None where nothing is compared by units."""
    found = [(ways.predicted(way, case.product, case.precision, case.moved), case) for case in cases]
    if not found:
        return None
    found.sort(key=lambda one: one[0] / one[1].precision["allowed"])
    error, worst = found[-1]
    return evaluation.WayResult(
        name=way.name,
        products=dict(way.products),
        error=_told(error),
        fits=ways.fits(error, worst.precision["allowed"]),
        limit_us=limit_us,
        output=worst.output,
        inputs=worst.inputs,
        errors={case.output: _told(error) for error, case in found},
    )


def _told(error: float) -> float | None:
    return error if math.isfinite(error) else None


def limit_of(work: Work, peaks: evaluation.Peaks, found: Iterable[evaluation.WayResult]) -> Limit:
    """The limit of the fastest way to multiply that is exact enough; where there is none, that of the counted work."""
    inside = [(way.limit_us, way.name) for way in found if way.fits == "inside" and way.limit_us is not None]
    if not inside:
        return limit(work, peaks)
    us, name = min(inside, key=lambda one: one[0])
    moved = moving_us(work, peaks)
    return Limit(us, f"by {name}") if us > moved else Limit(moved, moving_rate(peaks))
