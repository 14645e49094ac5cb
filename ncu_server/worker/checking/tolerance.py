"""The error budget of a tensor, and whether a constant would pass; by pieces, since outputs may be gigabytes.

The budget is a unit of error, of which comparison.BOUND are allowed. An element far above the others has a unit by its
own size; where a good part of a tensor is so small that zero would pass for it, that part gets one of its own, and so
on. Units are of the reference in full float32; what it errs as it runs, and a long sum, may allow more of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ncu_server.rules.comparison import BOUND
from ncu_server.rules.precision import SLACK, Name, Precision, sequential
from ncu_server.worker.answers import Units
from ncu_server.worker.timing.devices import DEVICES

DOUBLE_BYTES = 1 << 30  # of float64; more is kept as float32
GRAIN = 2.0**-6 / BOUND  # of an element: more than this share of it is no rounding, whatever the dtype
FINE = 1024.0  # for BOUND, at eps, in a part: whose elements honest kernels may have made of larger ones
SMALL, DEEP = 0.02, 16.0  # a normal distribution has 1.25 % of its values that far below a quarter of its rms
ROW = 64  # elements; shorter rows may be small by chance
LEVELS = 12  # from the largest float32 down to the least
BLIND = 1024.0  # of eps x rms: the own error taken for granted in float64, where the truth is the same computation
WIDER = 4.0  # times BOUND at most, for a long sum
REPEATS = 1e-3  # of the rms: what the order of additions can explain between two calls


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, or apart by no more than the order of additions can explain (1e-3 of the rms)."""
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    apart, squares = 0.0, 0.0
    for a, b in _pieces(one, other):
        x, y = a.double().nan_to_num(), b.double().nan_to_num()
        squares += float(x.square().sum())
        apart = max(apart, float((x - y).abs().max()))
    return apart <= REPEATS * math.sqrt(squares / max(one.numel(), 1)) + 1e-30


def truth(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The exact values, with the reference's own where those are not finite; `exact` is used up."""
    if not got.is_floating_point():
        return got
    kept = exact.contiguous()
    for mine, value in _pieces(got, kept):
        own = mine.double()  # torch cannot ask floats of one byte whether they are finite
        special = ~torch.isfinite(own)
        value[special] = own[special]
    return kept


def deviation(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """By how much the reference's own values are beyond the exact ones, in double precision; nothing where its own are
    not finite, which then stand for those."""
    own = got.double()
    return torch.where(torch.isfinite(own), own - exact, 0.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Of the elements up to some magnitude: the reference's largest error in full float32 and as it runs, their rms,
    and which share of the tensor is DEEP below it."""

    own: float
    ran: float
    rms: float
    deep: float


@dataclass(frozen=True, slots=True)
class Run:
    """What the reference gave, as it runs, and what shows how exact that is: the same in `full` float32, where that is
    something else, the `length` of the longest reduction and how `mixed` its terms are (see precision.sequential), the
    `narrow` arithmetic that products may have had.

    Where `apart`, `exact` holds by how much `got` is beyond the exact values: of that, half the bytes say as much.
    """

    got: torch.Tensor
    exact: torch.Tensor
    full: torch.Tensor | None = None
    length: int = 1
    mixed: float = 1.0
    narrow: Name | None = None
    apart: bool = False

    def pieces(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """What it gave, the exact values, and what full float32 gave, in double precision."""
        given = self.full is not None and self.full is not self.exact
        for mine, right, fuller in _pieces(self.got, self.exact, self.full if given else self.got):
            had, value = mine.double(), self._values(mine, right)
            yield had, value, fuller.double() if given else value if self.full is not None else had

    def rows(self) -> torch.Tensor:
        """The largest magnitude of each row; none where rows are short."""
        got, exact = self.got, self.exact
        if exact.dim() < 2 or (width := exact.shape[-1]) < ROW:
            return exact.new_empty(0, dtype=torch.float64)
        size = DEVICES[exact.device.type].piece
        some, right = (t.reshape(-1, width).split(max(1, size // width)) for t in (got, exact))
        return torch.cat([self._largest(one, other, size) for one, other in zip(some, right, strict=True)])

    def stored(self) -> torch.Tensor:
        """What is kept of the exact values; `exact` is used up. Where that is large, they are rounded to float32,
        which moves them by less than a unit."""
        rounds = self._rounds(self.exact.numel())
        if not self.apart:
            return self.exact.float() if rounds else self.exact
        fits = rounds or self.exact.dtype is torch.float64
        kept = self.exact if fits else torch.empty_like(self.exact, dtype=torch.float64)
        for mine, right, to in _pieces(self.got, self.exact, kept):
            to.copy_(self._values(mine, right))
        return kept

    def like(self, shape: list[int]) -> torch.Tensor:
        """The form of what is kept of a tensor of that shape, of which this is a part; it holds nothing."""
        floats = torch.float32 if self._rounds(math.prod(shape)) else torch.float64
        dtype = floats if self.got.is_floating_point() else self.got.dtype
        return torch.empty(shape, dtype=dtype, device="meta")

    def _rounds(self, count: int) -> bool:
        narrower = self.got.is_floating_point() and self.got.dtype is not torch.float64
        return narrower and 8 * count > DOUBLE_BYTES

    def _values(self, mine: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return mine.double().sub_(right) if self.apart else right.double()

    def _largest(self, mine: torch.Tensor, right: torch.Tensor, size: int) -> torch.Tensor:
        parts = zip(mine.split(size, -1), right.split(size, -1), strict=True)
        found = [torch.linalg.vector_norm(self._values(m, r), torch.inf, dim=-1) for m, r in parts]
        return torch.stack(found).amax(0)


def units(got: torch.Tensor, exact: torch.Tensor) -> Units | None:
    """As `budget`, of a reference that runs in full float32, and adds up little."""
    found = budget(Run(got, exact))
    return found[0] if found else None


def budget(run: Run) -> tuple[Units, Precision] | None:
    """The unit of each element, and how it comes about; None asks for equality.

    The whole tensor is allowed BOUND x max(the reference's own largest error in full float32, eps(dtype) x rms), yet no
    more than max(rms / 4, 4 x the own error): where eps is 2^-7 zero would pass for most else. It is allowed at most
    WIDER times as much where a float32 loop over the longest reduction errs more (precision.sequential), and SLACK
    times what the reference errs as it runs, where that is more.

    If a share of at least SMALL, or a whole row, lies DEEP below what is allowed, zero would pass for it; so what is
    not above that is allowed max(BOUND x its own error, FINE x eps x rms), yet no more than max(rms / 2, 4 x its own
    error), by its own rms; and so on. What the dtype cannot hold at full precision may be zero.
    """
    if not run.got.is_floating_point():
        return None
    limits = torch.finfo(run.got.dtype)
    eps, tiny = float(limits.eps), float(limits.tiny)
    whole = _scale(run, sys.float_info.max)
    most = max(whole.rms / 4, SLACK * whole.own)
    allowed = max(min(BOUND * max(whole.own, eps * whole.rms), most), tiny)
    looped = sequential(run.length, run.got.numel(), run.mixed) if run.got.dtype is torch.float32 else 0.0
    plain = max(allowed, min(WIDER * allowed, looped * whole.rms, most))
    given = max(plain, SLACK * whole.ran)
    wider = min(max(looped / (BOUND * eps), 1.0), WIDER)
    found: Units = {"grain": min(eps * wider, GRAIN), "levels": _levels(run, given, eps, tiny)}
    unit = allowed / BOUND
    return found, {
        "dtype": str(run.got.dtype).removeprefix("torch."),
        "count": run.got.numel(),
        "unit": unit,
        "rms": whole.rms / unit,
        "ran": whole.ran / unit,
        "plain": plain / unit,
        "allowed": given / unit,
        "most": max(most, given) / unit,
        "length": run.length,
        "narrow": run.narrow,
    }


def _levels(run: Run, allowed: float, eps: float, tiny: float) -> list[list[float]]:
    """The levels of answers.Units, of which the whole is allowed so much."""
    levels, rows = [[sys.float_info.max, allowed / BOUND]], run.rows()
    while len(levels) < LEVELS:
        ceiling = BOUND * levels[-1][1]
        part = _scale(run, ceiling)
        allowed = min(max(BOUND * part.own, FINE * eps * part.rms), max(part.rms / 2, SLACK * part.own))
        allowed = max(allowed, SLACK * part.ran, tiny)
        deep = part.deep >= SMALL or bool(((rows > 0) & (rows <= ceiling / DEEP)).any())
        if not deep or allowed >= ceiling:
            break
        levels.append([ceiling, allowed / BOUND])
    return levels


def _scale(run: Run, ceiling: float) -> Scale:
    own, ran, squares, count, deep = 0.0, 0.0, 0.0, 0, 0
    double = run.got.dtype is torch.float64
    most = _most(run) if double else 1.0  # whose square is no float64 when large or small
    taken = BLIND * torch.finfo(torch.float64).eps if double else 0.0
    for had, value, wholly in run.pieces():
        size = value.abs()
        meant = torch.isfinite(value) & torch.isfinite(had) & torch.isfinite(wholly)
        if ceiling < sys.float_info.max:
            meant &= (size <= ceiling) & (size > 0)
            deep += int((meant & (size <= ceiling / DEEP)).sum())
        ran = max(ran, float(torch.where(meant, (had - value).abs(), 0.0).max()))
        if run.full is not None:
            own = max(own, float(torch.where(meant, (wholly - value).abs(), 0.0).max()))
        squares += float(torch.where(meant, (value / most).square(), 0.0).sum())
        count += int(meant.sum())
    rms = most * math.sqrt(squares / max(count, 1))
    own, ran = max(ran if run.full is None else own, taken * rms), max(ran, taken * rms)
    return Scale(own, ran, rms, deep / max(run.got.numel(), 1))


def _most(run: Run) -> float:
    """The largest finite magnitude; 1 where there is none but zero."""
    sizes = (value.abs() for _, value, _ in run.pieces())
    return max((float(torch.where(torch.isfinite(s), s, 0.0).max()) for s in sizes), default=0.0) or 1.0


def errors(want: torch.Tensor, have: torch.Tensor, units: Units | None) -> torch.Tensor:
    """Error of each element in its unit, none of them NaN; infinity where equality, NaN or infinity is missed. Where
    there is but one level and all are within BOUND of its unit, it is counted in that."""
    if units is None:
        return torch.where(want == have, 0.0, torch.inf)
    w, h, whole = want.double(), have.double(), units["levels"][0][1]
    error = torch.sub(h, w).abs_().div_(whole)
    most = float(error.max()) if error.numel() else 0.0
    if len(units["levels"]) > 1 or not most <= BOUND:
        error.mul_(whole / _unit(w, units))
    if not math.isfinite(most):
        special = ~(torch.isfinite(w) & torch.isfinite(h))
        alike = (w == h) | (torch.isnan(w) & torch.isnan(h))
        error = torch.where(special, torch.where(alike, 0.0, torch.inf), error).nan_to_num_(torch.inf, torch.inf)
    return error


def _unit(want: torch.Tensor, units: Units) -> torch.Tensor:
    (_, whole), *parts = units["levels"]
    size = torch.where(torch.isfinite(want), want, 0.0).abs_()
    unit = (size * units["grain"]).clamp_(min=whole)
    for ceiling, one in parts:
        unit[(size <= ceiling) & (size > 0)] = one
    return unit


def degenerate(expected: Sequence[torch.Tensor], units: Sequence[Units | None]) -> str | None:
    """The constant that would pass for all outputs, in words; None where none would, or where none has an element."""
    if not any(t.numel() for t in expected):
        return None
    for word, centre in (("zeros", 0.0), ("one constant", None)):
        if all(_passes(t, u, centre) for t, u in zip(expected, units, strict=True)):
            return word
    return None


def finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all floats are."""
    pieces = (p for t in tensors if t.is_floating_point() for (p,) in _pieces(t))
    return all(bool(torch.isfinite(p.double() if p.element_size() == 1 else p).all()) for p in pieces)


def _passes(tensor: torch.Tensor, units: Units | None, centre: float | None) -> bool:
    if centre is None:
        centre = sum(float(p.double().sum()) for (p,) in _pieces(tensor)) / max(tensor.numel(), 1)
    constant = torch.tensor(centre, dtype=torch.float64, device=tensor.device)
    return all(float(errors(p, constant, units).max()) <= BOUND for (p,) in _pieces(tensor))


def _pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    flat = [t.reshape(-1) for t in tensors]
    size = DEVICES[flat[0].device.type].piece
    for start in range(0, flat[0].numel(), size):
        yield tuple(f[start : start + size] for f in flat)
