"""The error budget of a tensor, and whether a constant would pass; by pieces, since outputs may be gigabytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from ncu_server.compare import BOUND

# Elements: on the CPU small enough that temporaries stay in the allocator, on a GPU few launches.
PIECE = {"cpu": 1 << 19, "cuda": 1 << 24}
FRUGAL_BYTES = 1 << 30  # float64 beyond it is kept as float32
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


def unit(got: torch.Tensor, exact: torch.Tensor) -> float | None:
    """max(largest error of the reference itself, eps(dtype) x rms) over the finite elements; None asks for equality."""
    if not got.is_floating_point():
        return None
    own, squares, count = 0.0, 0.0, 0
    for mine, right in _pieces(got, exact):
        value, had = right.double(), mine.double()
        known = torch.isfinite(value) & torch.isfinite(had)
        own = max(own, float(torch.where(known, (had - value).abs(), 0.0).max()))
        squares += float(torch.where(known, value.square(), 0.0).sum())
        count += int(known.sum())
    limits = torch.finfo(got.dtype)
    if not count:
        return float(limits.eps)
    return max(own, float(limits.eps) * math.sqrt(squares / count), float(limits.tiny))


def stored(right: torch.Tensor) -> torch.Tensor:
    """What is kept of the truth: where it is large, rounded to float32, which moves it by less than a unit."""
    large = right.dtype is torch.float64 and right.numel() * right.element_size() > FRUGAL_BYTES
    return right.float() if large else right


def degenerate(expected: Sequence[torch.Tensor], units: Sequence[float | None]) -> str | None:
    """The constant that would pass for all outputs, in words; None where none would."""
    for word, centre in (("zeros", 0.0), ("one constant", None)):
        if all(_passes(t, u, centre) for t, u in zip(expected, units, strict=True)):
            return word
    return None


def finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all floats are."""
    pieces = (p for t in tensors if t.is_floating_point() for (p,) in _pieces(t))
    return all(bool(torch.isfinite(p.double() if p.element_size() == 1 else p).all()) for p in pieces)


def _passes(tensor: torch.Tensor, one: float | None, centre: float | None) -> bool:
    if centre is None:
        centre = sum(float(p.double().sum()) for (p,) in _pieces(tensor)) / max(tensor.numel(), 1)
    bound = BOUND * (one or 0.0)
    return all(float((p.double() - centre).abs().max()) <= bound for (p,) in _pieces(tensor))


def _pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    flat = [t.reshape(-1) for t in tensors]
    size = PIECE[flat[0].device.type]
    for start in range(0, flat[0].numel(), size):
        yield tuple(f[start : start + size] for f in flat)
