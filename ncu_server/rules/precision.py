"""How exact an arithmetic is: what the reference's own excuses, and which one a kernel's error is worthy of.

Errors are in units of what the output's dtype makes itself (see worker.checking.tolerance). All bounds are of sums
whose roundings are independent (N. J. Higham and T. Mary, "A New Approach to
Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019). A rounding to nearest with unit roundoff u
moves a number by u / sqrt(6) of itself, root mean square: it is uniform within the spacing, and the mean of 1 / m^2
over 1 <= m < 2 is 1/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from typing_extensions import TypedDict

from ncu_server.rules.comparison import BOUND

Name = Literal["exact", "float64", "float32", "tf32", "fp16", "bf16", "fp8"]
SLACK = 4.0  # times the error of the reference as it runs: between TF32 and bfloat16 lies a factor of 8
FEW = 4096  # elements, of which the largest error is near its expectation; of fewer it may be small by chance
TAIL = 2.0**-30  # the chance that an honest loop over the terms errs by more: a verdict compares a hundred times


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A format of operands: its name on the wire and in words, and its unit roundoff (half the spacing at one)."""

    name: Name
    words: str
    roundoff: float


# Finest first: integers, formats of IEEE 754-2019, NVIDIA's TF32 (10 bits of mantissa), bfloat16 (7), OCP's E4M3 (3).
ARITHMETICS = (
    Arithmetic("exact", "integers", 0.0),
    Arithmetic("float64", "float64", 2.0**-53),
    Arithmetic("float32", "float32", 2.0**-24),
    Arithmetic("tf32", "TF32, or float16 operands", 2.0**-11),
    Arithmetic("fp16", "float16", 2.0**-11),
    Arithmetic("bf16", "bfloat16", 2.0**-8),
    Arithmetic("fp8", "fp8 with scales", 2.0**-4),
)
BY_NAME: dict[str, Arithmetic] = {one.name: one for one in ARITHMETICS}
OF_DTYPE: dict[str, Name] = {
    **{"float64": "float64", "float32": "float32", "float16": "fp16", "bfloat16": "bf16"},
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), "fp8"),
}


class Precision(TypedDict):
    """One float tensor on one input set: its `dtype` and the `count` of its elements, and the size of one `unit` of
    error; in units, its root mean square, the largest error of the reference as it `ran`, what is allowed of its
    dtype's own arithmetic (`plain`), what is allowed, and at most. `length` is the longest reduction that was traced,
    `narrow` the arithmetic that the reference may take for products beside its dtype's own."""

    dtype: str
    count: int
    unit: float
    rms: float
    ran: float
    plain: float
    allowed: float
    most: float
    length: int
    narrow: Name | None


@dataclass(frozen=True, slots=True)
class Exactness:
    """The error of a candidate that is nearest to what is allowed, both in units, and the coarsest arithmetic that any
    of its errors is worthy of; None where it is worthy of none. `held` says of which output on which inputs."""

    error: float
    allowed: float
    arithmetic: Name | None
    held: str = ""

    @property
    def share(self) -> float:
        """The error in what is allowed."""
        return self.error / self.allowed

    @property
    def sentence(self) -> str:
        """The arithmetic for people."""
        if self.arithmetic == "exact":
            return "The kernel gives the reference's integers."
        if self.arithmetic is None:
            return "No arithmetic's rounding explains the kernel's error."
        return f"The kernel is as exact as {BY_NAME[self.arithmetic].words}."


def largest_of(count: int, tail: float = 1.0) -> float:
    """What bounds the largest of `count` normal numbers, in standard deviations: sqrt(2 ln(2 count)) bounds what is
    expected (S. Boucheron, G. Lugosi, P. Massart, "Concentration Inequalities", 2013, theorem 2.5), and a `tail` below
    one is the chance that the largest is beyond (union bound)."""
    return math.sqrt(2 * math.log(2 * max(count, 1) / tail))


def sequential(length: int, count: int, mixed: float) -> float:
    """What a float32 loop over `length` terms errs, relative to the root mean square of its `count` sums.

    The sum of j terms of size t is j t where they have one sign, and about sqrt(j) t where they have either. Rounding
    each such sum errs t u sqrt(length^3 / 18) in all, or t u sqrt(length^2 / 12), where the whole is length t, or
    sqrt(length) t. `mixed`, length x the mean square of the terms over that of the sums, is next to 0 for the first and
    about 1 for the second, whose variance is taken twice: sums of either sign wander, and few wander far. With a chance
    of about TAIL one of the sums is beyond `largest_of` it. The worst case is u length (N. J. Higham, "Accuracy and
    Stability of Numerical Algorithms", 2002, section 4.2).
    """
    each = math.sqrt(length * (max(1 - mixed, 0.0) / 18 + 2 * mixed / 12))
    return largest_of(count, TAIL) * BY_NAME["float32"].roundoff * each


def rounded(operands: Arithmetic, length: int, count: int) -> float:
    """The largest error that is expected of `count` sums of `length` products of either sign, relative to their root
    mean square.

    Each product has two operands that are rounded: u / sqrt(3), whatever the length, since error and sum both grow by
    its square root. Adding them up in float32 errs u sqrt(length / 12).
    """
    added = BY_NAME["float32"].roundoff * math.sqrt(length / 12)
    return largest_of(count) * (operands.roundoff / math.sqrt(3) + added)


def ran_on_all(one: Precision, together: Sequence[Precision]) -> float:
    """The largest error of the reference as it runs on all input sets together, in the units of `one` of them.

    Where they hold fewer than FEW elements and a narrow arithmetic shows, at least what is expected of it for the
    length of the traced product.
    """
    ran, count = max(each["ran"] for each in together), sum(each["count"] for each in together)
    if count >= FEW or SLACK * ran <= BOUND or not one["narrow"]:
        return ran
    return max(ran, rounded(BY_NAME[one["narrow"]], one["length"], count) * one["rms"])


def widened(one: Precision, together: Sequence[Precision]) -> Precision:
    """What is allowed on an input set beside others: the larger of its dtype's own and SLACK times what the reference
    errs on all of them, yet no more than may be on this one."""
    ran = ran_on_all(one, together)
    allowed = min(max(one["plain"], SLACK * ran), max(one["most"], one["allowed"]))
    return {**one, "ran": ran, "allowed": max(one["allowed"], allowed)}


def of_reference(one: Precision) -> Name | None:
    """The arithmetic that shows in the reference's own error; None for a dtype that has none here."""
    own = OF_DTYPE.get(one["dtype"])
    return one["narrow"] if own and one["narrow"] and SLACK * one["ran"] > BOUND else own


def worthy(error: float, one: Precision) -> Name | None:
    """The finest arithmetic that an error (in units) is worthy of: that of the dtype where no more is allowed of it,
    else the first whose expected error is SLACK times smaller at most. None for what is more than half of the root
    mean square, which is no rounding of operands."""
    own = OF_DTYPE.get(one["dtype"])
    if own is None or error <= one["plain"]:
        return own
    if error > one["rms"] / 2 and error > one["allowed"]:
        return None
    coarser = [each for each in ARITHMETICS if each.roundoff > BY_NAME[own].roundoff]
    return next((each.name for each in coarser if error <= SLACK * _expected(each, one)), None)


def _expected(operands: Arithmetic, one: Precision) -> float:
    """What an arithmetic errs, in units: as the reference's narrow one does, or for the length of its sums."""
    shown = of_reference(one)
    if shown and shown == one["narrow"] and SLACK * one["ran"] > BOUND:
        return one["ran"] * operands.roundoff / BY_NAME[shown].roundoff
    return rounded(operands, one["length"], one["count"]) * one["rms"]


def coarsest(names: Sequence[Name | None]) -> Name | None:
    """The coarsest of them; None, which is worthy of none, is coarser than any."""
    order = [*BY_NAME, None]
    return max(names, key=order.index)


def joined(each: Sequence[Exactness]) -> Exactness | None:
    """Of several tensors or input sets; None of none."""
    if not each:
        return None
    worst = max(each, key=lambda one: one.share)
    return replace(worst, arithmetic=coarsest([one.arithmetic for one in each]))
