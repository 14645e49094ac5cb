"""Calls in slices: where a model treats each index of a dimension by itself, what it gives for gigabytes can be
computed piece by piece in double precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ncu_server.worker.answers import Slices
from ncu_server.worker.tensors import real

SLICE_BYTES, SLICES = 256 << 20, 32  # what a slice may take, or that part of what the whole call does
CLOSE = 1e-5  # of the rms: two calls of a kernel for other sizes; less than leaving anything out makes for one index
ALIKE = 1e-3  # the same over all indices, where rounding errs most: what is computed otherwise there is no rounding
DIMENSIONS = 3  # that are tried
PLACES = (0.29, 0.83)  # of the indices that are compared with the whole, as shares of the dimension


@dataclass(frozen=True, slots=True)
class Cut:
    """A dimension of all outputs, how many indices it has, and the numbers of the inputs that are cut along it."""

    dimension: int
    size: int
    inputs: tuple[int, ...]

    def of(self, tensors: Sequence[torch.Tensor], start: int, length: int) -> list[torch.Tensor]:
        """The tensors of a call on some indices."""
        return [
            t.narrow(self.dimension, start, length) if place in self.inputs else t for place, t in enumerate(tensors)
        ]

    @classmethod
    def along(cls, slices: Slices) -> Cut:
        """That of an answer."""
        return cls(slices["dimension"], slices["size"], tuple(slices["inputs"]))

    @property
    def slices(self) -> Slices:
        """As an answer tells it."""
        return {"dimension": self.dimension, "size": self.size, "inputs": list(self.inputs)}

    def length(self, whole: int) -> int:
        """Indices of a slice, at least one; the whole call takes so many bytes, and twice as many in double."""
        room = max(SLICE_BYTES, whole // SLICES)
        return max(1, min(self.size, self.size * room // max(2 * whole, 1)))

    def whole(self, part: torch.Tensor) -> list[int]:
        """The shape of what a slice is part of."""
        return [*part.shape[: self.dimension], self.size, *part.shape[self.dimension + 1 :]]

    def pieces(self, whole: int) -> Iterator[tuple[int, int]]:
        """Where pieces begin in which all indices are compared, and how many each has; `whole` as for `length`."""
        length = max(1, self.length(whole) // 4)  # as what is compared lies there in double, too
        for start in range(0, self.size, length):
            yield start, min(length, self.size - start)

    def starts(self) -> list[int]:
        """Indices at which one slice is compared with the whole."""
        return sorted({min(self.size - 1, int(share * self.size)) for share in PLACES})


def cuts(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Iterator[Cut]:
    """The cuts that the shapes allow: along each dimension all inputs that have it, then each of them alone."""
    for dimension in range(min([DIMENSIONS, *(t.dim() for t in outputs)])):
        size = outputs[0].shape[dimension]
        if size < 2 or any(t.shape[dimension] != size for t in outputs):
            continue
        fitting = tuple(i for i, t in enumerate(inputs) if t.dim() > dimension and t.shape[dimension] == size)
        yield from dict.fromkeys(Cut(dimension, size, some) for some in (fitting, *((i,) for i in fitting)) if some)


def agree(part: torch.Tensor, whole: torch.Tensor, close: float = CLOSE) -> bool:
    """Whether a call on some indices gives what the whole call gave there: alike but for rounding, which is at most
    `close` of the rms."""
    if part.shape != whole.shape or part.dtype != whole.dtype:
        return False
    a, b = real(part), real(whole)
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    x, y = a.double(), b.double()
    special = ~(torch.isfinite(x) & torch.isfinite(y))
    if bool((special & (x != y) & ~(torch.isnan(x) & torch.isnan(y))).any()):
        return False
    x, y = x.masked_fill(special, 0.0), y.masked_fill(special, 0.0)
    rms = math.sqrt(float(y.square().mean())) if y.numel() else 0.0
    return not y.numel() or float((x - y).abs().max()) <= close * rms
