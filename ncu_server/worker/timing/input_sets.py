"""The secret input sets of a problem: as `get_inputs` draws them, and sharper ones in the same range; for a problem to
which a constant would be the answer, ones outside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ncu_server.worker.tensors import mapped, real

PART = 1 << 24  # elements that are changed at once
ROW_SCALES = (1.0, 0.5, 0.25, 0.0625)
STRETCH = 32.0
FIRST, COLUMNS = 64, 1 << 16  # rows, and elements of each, in which what is in no order mostly shows it
STEEP = 0.9  # of the steps of what is in order; numbers that are drawn and sorted are seldom equal


def sharper(inputs: list[Any], generator: torch.Generator) -> list[Any]:
    """Floats pulled towards zero by random amounts, whole rows by more: same range, same signs, other statistics.

    Means, maxima and sums then differ from row to row, so that constant, subsampled or low-variance answers show.
    Where zero is outside the observed range the nearer end takes its place. Complex numbers are pairs of floats;
    infinities and NaN stay where they are;
    integers and booleans stay as drawn, and so do floats in order and symmetric matrices: both may be needed as such.
    """

    def pull(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() < 2 or ordered(tensor) or symmetric(tensor):
            return tensor
        if not (ends := finite_ends(tensor)):
            return tensor
        pivot, made = min(max(0.0, ends[0]), ends[1]), torch.empty_like(tensor, memory_format=torch.contiguous_format)
        rows = tensor.reshape(len(tensor), -1)
        scales = torch.ones(len(rows), 1, device=tensor.device)
        if tensor.dim() > 1:
            known = torch.tensor(ROW_SCALES, dtype=torch.float32, device=tensor.device)
            some = torch.randint(len(ROW_SCALES), (len(rows),), generator=generator, device=tensor.device)
            scales = known[some, None]
        for part in _parts(rows):
            given = rows[part]
            factor = torch.rand(given.shape, generator=generator, dtype=torch.float32, device=tensor.device).pow_(2)
            factor *= scales[part[0]]
            moved = ((given - pivot) * factor.to(tensor.dtype) + pivot).clamp_(*ends)
            made.view(rows.shape)[part] = torch.where(torch.isfinite(given), moved, given)
        return made

    changed: list[Any] = mapped(inputs, lambda t: _as_floats(t, pull))
    return changed


def _parts(rows: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Places of a matrix that have PART elements at most, together all of it."""
    height = max(1, PART // max(rows.shape[1], 1))
    for i in range(0, rows.shape[0], height):
        for j in range(0, rows.shape[1], PART):
            yield slice(i, i + height), slice(j, j + PART)


def finite_ends(tensor: torch.Tensor) -> tuple[float, float] | None:
    """The least and the largest finite number, by parts: a mask of gigabytes is several times as large as a list of
    places. None where there is none. Complex numbers are pairs of floats."""
    found = []
    for some in real(tensor).reshape(-1).split(PART):
        part = some.float() if some.element_size() == 1 else some
        if (numbers := part[torch.isfinite(part)]).numel():
            found.append((float(numbers.min()), float(numbers.max())))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def ordered(tensor: torch.Tensor) -> bool:
    """Whether all columns along the longest or the last dimension rise or all fall, nearly everywhere, as boundaries
    and positions do; a triangle of ones does not."""
    if tensor.is_complex() or tensor.dim() == 0 or tensor.element_size() == 1 or tensor.numel() < 2:
        return False
    longest = max(range(tensor.dim()), key=lambda d: tensor.shape[d])
    ways = (tensor.movedim(d, 0) for d in {longest, tensor.dim() - 1} if tensor.shape[d] > 1)
    return any(_steps(_first(rows)) and _steps(rows) for rows in ways)


def _first(rows: torch.Tensor) -> torch.Tensor:
    some = rows[:FIRST]
    for d in range(1, some.dim()):
        size = some.shape[d]
        some = some.narrow(d, 0, min(size, max(1, COLUMNS * size // max(some[0].numel(), 1))))
    return some


def _steps(rows: torch.Tensor) -> bool:
    steps = rows.diff(dim=0)
    one_way = bool((steps >= 0).all() or (steps <= 0).all())
    return one_way and int((steps != 0).sum()) >= STEEP * steps.numel()


def symmetric(tensor: torch.Tensor) -> bool:
    """Whether the last two dimensions are those of symmetric matrices, and no constant."""
    square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1 and tensor.element_size() > 1
    if not square or not tensor.numel():
        return False
    matrices = tensor.flatten(0, -3) if tensor.dim() > 2 else tensor[None]
    parts = matrices.split(max(1, PART // matrices[0].numel()))
    first = tensor[(0,) * tensor.dim()]
    return all(torch.equal(one, one.mT) for one in parts) and any(bool((one != first).any()) for one in parts)


def stretched(inputs: list[Any]) -> list[Any]:
    """Floats many times as far from zero as drawn, so that a branch which no drawn value takes is taken."""
    changed: list[Any] = mapped(inputs, lambda t: _as_floats(t, lambda floats: floats * STRETCH))
    return changed


def far(tensors: list[torch.Tensor], still: Sequence[int]) -> list[torch.Tensor] | None:
    """As `stretched`, but only what has both signs: what has one may be probabilities, or places. None where that is
    nothing, or where it would be infinite."""

    def stretch(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * STRETCH if bool((tensor < 0).any()) and bool((tensor > 0).any()) else tensor

    made = [t if place in still else _as_floats(t, stretch) for place, t in enumerate(tensors)]
    floats = [real(t) for t in made if t.is_floating_point() or t.is_complex()]
    finite = all(bool(torch.isfinite(t.float() if t.element_size() == 1 else t).all()) for t in floats)
    same = all(one is other or torch.equal(real(one), real(other)) for one, other in zip(made, tensors, strict=True))
    return made if finite and not same else None


def holed(inputs: list[Any], generator: torch.Generator) -> list[Any]:
    """NaN in some rows of the floats: where all numbers give the same output, it shows whether they are read at all."""

    def punch(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.numel():
            return tensor
        made = tensor.clone()
        rows = made if made.dim() else made[None]
        some = torch.randint(len(rows), (max(1, len(rows) // 4),), generator=generator, device=made.device)
        rows[some] = torch.nan
        return made

    changed: list[Any] = mapped(inputs, lambda t: _as_floats(t, punch))
    return changed


def _as_floats(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A tensor of floats or complex numbers changed, any other as it is.

    Torch has no arithmetic for floats of one byte: they are changed as float32, and rounded back into their range.
    """
    if tensor.is_complex():
        return torch.view_as_complex(change(real(tensor)).contiguous())
    if not tensor.is_floating_point():
        return tensor
    if tensor.element_size() > 1:
        return change(tensor)
    limits = torch.finfo(tensor.dtype)
    return change(tensor.float()).clamp(limits.min, limits.max).to(tensor.dtype)
