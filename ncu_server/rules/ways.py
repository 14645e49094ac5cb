"""Ways to compute a float32 product, and what each is expected to err: a pure function of the product and its units.

A sum of K products a b errs where its operands are rounded. An operand x that is moved by r x (r the root mean square
of the relative error, independent of x and of its neighbours) moves the sum by sqrt(K) r t, t the root mean square of
a b: the errors add up as a random walk does, whatever the sign of the terms (N. J. Higham and T. Mary, "A New
Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019). Over the sums' own root mean
square this is r sqrt(mixed), `mixed` = K t^2 over the mean square of the sums: about 1 where terms have either sign,
next to 0 where they have one. With u the unit roundoff of a format (half its spacing at one):

- an operand rounded once: r = u / sqrt(6) each (see rules.precision), so u / sqrt(3) of both;
- an operand in two parts of a format, x = hi + lo + rest: lo is u / sqrt(6) of x, the rest u^2 / 6; left out are both
  rests and lo lo: u^2 sqrt(3) / 6 in all (three products), and u^3 with three parts (six products);
- a product in a format with corrections lo hi' and hi lo' in a coarser one of roundoff v, whose two operands are
  rounded: u v / 3 in all, lo lo' left out; with one of them u v / sqrt(18), and the operand that has none;
- fixed-point digits, 256 h + l for a row's largest magnitude p (in root mean squares of the row): a step of p /
  32,512 is rounded to a twelfth of its square, and l l', of p 256 / (sqrt(12) 32,512) each, is left out (H. Ootomo,
  K. Ozaki, R. Yokota, "DGEMM on Integer Matrix Multiplication Unit", 2024).

Adding up in float32 errs u sqrt(n / 12) of n additions of either sign, u sqrt(n / 18) of one (see
rules.precision.sequential); a tensor core adds sixteen products at once. The largest error of many is `largest_of`
times that. Emulated products come within a factor of 2.5 of it (tests/ncu_server/rules/test_ways.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from typing_extensions import TypedDict

from ncu_server.rules.precision import BY_NAME, Precision, largest_of

Fits = Literal["inside", "near", "outside"]
MARGIN = 2.0  # a prediction this close to what is allowed decides nothing: it is near
FP16_LARGEST = 65504.0  # beyond which float16 is infinite
AT_ONCE = 16  # products that a tensor core adds before it adds to the accumulator
STEPS = 127 * 256  # of a row's largest magnitude in two signed bytes
FP16_STEP = 2.0**-24  # of its smallest numbers: a value below 2^-14 is moved by up to half of it


class Operand(TypedDict):
    """One operand of a product: its root mean square, its largest magnitude, and the root mean square of the largest
    magnitude of a row (along the sum) over that of the row."""

    rms: float
    largest: float
    peak: float


class Product(TypedDict):
    """The float32 product or convolution of a call that takes most operations: how many products one sum has, how
    `mixed` they are (see above), and its two operands."""

    terms: int
    mixed: float
    operands: list[Operand]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to compute a product: what it is called, how many products of which format it takes, and what it errs:
    relative to the sums' root mean square where `mixed` is 1, without what adding up errs."""

    name: str
    products: Mapping[str, int]
    relative: Callable[[Product], float]


def _rounded(name: str) -> Callable[[Product], float]:
    return lambda _: BY_NAME[name].roundoff / math.sqrt(3)


def _half(product: Product) -> float:
    """Rounded to float16: infinite beyond its range, and coarse for operands that are mostly below its normal ones."""
    if any(one["largest"] > FP16_LARGEST for one in product["operands"]):
        return math.inf
    return math.hypot(*map(_in_half, product["operands"]))


def _in_half(one: Operand) -> float:
    return math.hypot(BY_NAME["fp16"].roundoff / math.sqrt(6), FP16_STEP / math.sqrt(12) / max(one["rms"], 1e-300))


def _two_parts(name: str) -> Callable[[Product], float]:
    return lambda _: BY_NAME[name].roundoff ** 2 * math.sqrt(3) / 6


def _corrected(product: Product) -> float:
    if math.isinf(_half(product)):
        return math.inf
    return BY_NAME["fp16"].roundoff * BY_NAME["fp8"].roundoff / 3


def _corrected_once(product: Product) -> float:
    """The operand that is rounded more coarsely is corrected."""
    return math.hypot(_corrected(product) / math.sqrt(2), min(map(_in_half, product["operands"])))


def _digits(product: Product) -> float:
    one, other = (operand["peak"] for operand in product["operands"])
    steps = math.hypot(one, other) / STEPS / math.sqrt(12)
    return math.hypot(steps, one * other * (256 / STEPS) ** 2 / 12)


# Cheapest first by the rates of a GPU with tensor cores.
WAYS = (
    Way("one bfloat16 product", {"bf16": 1}, _rounded("bf16")),
    Way("one float16 product", {"bf16": 1}, _half),
    Way("a float16 product, one fp8 correction", {"bf16": 1, "fp8": 1}, _corrected_once),
    Way("one TF32 product", {"TF32": 1}, _rounded("tf32")),
    Way("three int8 products of fixed-point digits", {"int8": 3}, _digits),
    Way("a float16 product, two fp8 corrections", {"bf16": 1, "fp8": 2}, _corrected),
    Way("three bfloat16 products", {"bf16": 3}, _two_parts("bf16")),
    Way("three TF32 products", {"TF32": 3}, _two_parts("tf32")),
    Way("float32 on the FMA units", {"fp32": 1}, lambda _: 0.0),
)


def predicted(way: Way, product: Product, output: Precision, moved: float | None = None) -> float:
    """The largest error that is expected of a way for an output of `output["count"]` elements, in its units.

    `moved`: how far the output moves, in its values, where the operands of all products are rounded to 11 significant
    bits; all ways are taken to move it in relation to that. Where it is not known, or nothing, what follows the product
    is taken to keep errors in relation to the values: a norm and a scale do, a mean over the sums does not.
    """
    mixed = product["mixed"]
    additions = product["terms"] / (1 if "fp32" in way.products else AT_ONCE)
    added = BY_NAME["float32"].roundoff * math.sqrt(additions * (max(1 - mixed, 0.0) / 18 + mixed / 12))
    relative = math.hypot(way.relative(product) * math.sqrt(mixed), added)
    if moved and mixed and math.isfinite(moved):
        return moved / output["unit"] * relative / (BY_NAME["tf32"].roundoff / math.sqrt(3) * math.sqrt(mixed))
    return largest_of(output["count"]) * relative * output["rms"]


def fits(error: float, allowed: float) -> Fits:
    """Whether a predicted error is inside what is allowed, both in units, or so near that only the judge can say."""
    if error * MARGIN <= allowed:
        return "inside"
    return "outside" if error > allowed * MARGIN else "near"
