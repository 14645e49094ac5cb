"""A draw of the inputs, and what each timed call gets of it: values of its own, of which nothing served before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from ncu_server.sandbox.shared_memory import Spec, TensorLayout
from ncu_server.worker.checking.tolerance import finite
from ncu_server.worker.tensors import placed, real
from ncu_server.worker.timing.input_sets import finite_ends, ordered, symmetric

LEAST = 0.75  # of the factors
PIECE, SPREAD = 1 << 22, 1 << 20  # floats that find their factors in one place, and how many places there are
BASE_BYTES = 1 << 30  # of floats that are kept as drawn; of a larger tensor but every n-th one changes
FRUGAL_BASE_BYTES = 128 << 20  # the same where memory is short
FEW = 1024  # elements by which values that are alike differ: too few for a sample of the input to notice
MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, as in SplitMix64: neighbouring nonces get unlike values
SEED = 20_261_129
UNSIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

Fill = Callable[[torch.Tensor, int | None, bool], None]
"""Gives a tensor, which holds the draw's other values, those that belong to a nonce (see Draw.fill), or without one
those that were drawn."""


class Draw:
    """One draw of the inputs, and the tensors that it gives for a nonce.

    Each float comes nearer to zero by a factor of its own (or to the nearer end of a range that zero is not in): signs,
    zeros and the range that was drawn stay. Integers move along the longest dimension. What is in order or symmetric
    stays as drawn, and so do the inputs in `still`.
    """

    def __init__(
        self,
        given: list[torch.Tensor],
        spec: Spec,
        device: str,
        still: Sequence[int],
        kept: bool,
        bases: int = BASE_BYTES,
    ) -> None:
        """`given` are what was drawn, wherever it lies. `kept`: calls change their inputs, so that all of them is put
        back each time. `bases` are the bytes of a tensor's floats that are kept as drawn."""
        steps = [1 if kept or not _is_float(t) else max(1, -(-t.nbytes // bases)) for t in given]
        factors = Factors(max((_span(layout) for layout in spec["tensors"]), default=0), device)
        # A small tensor beside a giant is copied: it would hold the memory of both.
        little = device == "cuda" and all(t.nbytes <= bases for t in given)
        self._kept = kept
        self._drawn: list[torch.Tensor | None] = []  # None of a giant: most of it stays where it was laid
        self._fills: list[Fill | None] = []
        for place, (t, layout, step) in enumerate(zip(given, spec["tensors"], steps, strict=True)):
            large = t.nbytes > bases or little  # nobody writes to what was given: it need not be copied
            as_it_lies = large and list(t.stride()) == layout["strides"] and t.device.type == device
            base = t if as_it_lies else placed(t, layout, device)
            self._fills.append(None if place in still else filled(base, place, factors, step))
            self._drawn.append(base if step == 1 else None)
        self.changes = all(
            fill is not None and _is_float(t) for fill, t in zip(self._fills, given, strict=True) if t.numel() > 1
        )
        """Whether all inputs of more than one element are floats that change, and so whatever is made of them."""

    def leaves(self, place: int) -> bool:
        """Whether nothing but `fill` ever writes to a tensor in which this input was laid."""
        return self._drawn[place] is None

    def lay(self, held: list[torch.Tensor]) -> None:
        """Put the values that were drawn into tensors of the draw's layout; a giant has to hold them already, but for
        those that `fill` changes."""
        for tensor, drawn, fill in zip(held, self._drawn, self._fills, strict=True):
            if drawn is not None:
                tensor.copy_(drawn)
            elif fill:
                fill(tensor, None, False)

    def fill(self, held: list[torch.Tensor], nonce: int, alike: bool = False) -> None:
        """Give tensors in which the draw was laid the values that belong to a nonce: throughout its own, or `alike`,
        which differ from those of other such nonces in few elements."""
        for tensor, drawn, fill in zip(held, self._drawn, self._fills, strict=True):
            if fill:
                fill(tensor, nonce, alike)
            elif self._kept and drawn is not None:
                tensor.copy_(drawn)


class Factors:
    """Numbers from LEAST to 1, in the same order everywhere; a nonce says where they are taken from."""

    def __init__(self, most: int, device: str) -> None:
        generator = torch.Generator().manual_seed(SEED)
        drawn = torch.rand(min(most, PIECE) + SPREAD, generator=generator, dtype=torch.float32)
        self._values = drawn.mul_(1 - LEAST).add_(LEAST).to(device)
        self._cast: dict[torch.dtype, torch.Tensor] = {}

    def pieces(self, count: int, dtype: torch.dtype, nonce: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """Which of `count` elements get which factors."""
        if dtype not in self._cast:
            self._cast[dtype] = self._values.to(dtype)
        for start in range(0, count, PIECE):
            end = min(start + PIECE, count)
            at = (nonce + start + 1) * MIX % 2**64 * SPREAD >> 64
            yield slice(start, end), self._cast[dtype][at : at + end - start]


class Between:
    """A few floats between every `step`-th: a nonce chooses which are halved, as nobody knows where a giant changes
    then. Doubling takes it back before the next change."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._halved: dict[int, torch.Tensor] = {}  # by the address of the tensor

    def change(self, whole: torch.Tensor, nonce: int | None) -> None:
        """Take back what was changed, and halve those that a nonce chooses; none without one."""
        if (before := self._halved.pop(whole.data_ptr(), None)) is not None:
            whole[before] = whole[before] * 2
        if nonce is None:
            return
        generator = torch.Generator(whole.device).manual_seed(nonce % 2**63)
        chosen = [torch.randint(most, (FEW,), generator=generator, device=whole.device) for most in self._most(whole)]
        places = chosen[0] * self._step + 1 + chosen[1]
        whole[places] = whole[places] * 0.5
        self._halved[whole.data_ptr()] = places

    def _most(self, whole: torch.Tensor) -> tuple[int, int]:
        return len(whole) // self._step, self._step - 1


def filled(base: torch.Tensor, place: int, factors: Factors, step: int = 1) -> Fill | None:
    """How the input at `place` gets a nonce's values from `base`; of floats every `step`-th. None where it stays."""
    if not base.numel():
        return None
    if _is_float(base):
        return None if ordered(base) or symmetric(base) else _drawn_in(base, place * MIX, factors, step)
    return _moved(base) if wanders(base) else None


def _drawn_in(base: torch.Tensor, salt: int, factors: Factors, step: int) -> Fill | None:
    values = _flat(base)[::step].contiguous()
    narrow = values.element_size() == 1  # for floats of one byte torch has no arithmetic
    if not (ends := finite_ends(base)) or ends[0] == ends[1]:
        return None
    low, high = ends
    pivot, stride, clamps = min(max(0.0, low), high), max(1, len(values) // FEW), finite([real(base)])
    between = Between(step) if step > 1 and not (narrow or pivot) else None

    def fill(tensor: torch.Tensor, nonce: int | None, alike: bool) -> None:
        if between:
            between.change(_flat(tensor), nonce)
        out, dtype = _flat(tensor)[::step], torch.float32 if narrow else values.dtype
        if nonce is None:
            out.copy_(values)
            return
        for part, by in factors.pieces(len(values), dtype, salt if alike else nonce + salt):
            if narrow or pivot:
                _shrink(values[part], out[part], by)
            else:
                torch.mul(values[part], by, out=out[part])
        if alike:
            few = out[nonce % stride :: stride]
            _shrink(few, few, LEAST + (nonce >> 16) % 1024 * (1 - LEAST) / 1024)

    def _shrink(given: torch.Tensor, to: torch.Tensor, by: torch.Tensor | float) -> None:
        moved = ((given.float() if narrow else given) - pivot).mul_(by).add_(pivot)
        to.copy_(moved.clamp_(low, high) if clamps else moved)

    return fill


def wanders(tensor: torch.Tensor) -> bool:
    """Whether integers may move: no column along the longest dimension is in order (an order may be needed)."""
    if tensor.dim() == 0 or tensor.numel() < 2:
        return False
    steps = _slices(tensor if tensor.dtype.is_signed else tensor.long()).diff(dim=0)  # unsigned ones never fall
    rises, falls = (steps > 0).any(dim=0), (steps < 0).any(dim=0)
    return bool((rises == falls).all()) and bool(rises.any())


def _moved(base: torch.Tensor) -> Fill:
    """What a column may hold depends on the column, so slices move as wholes: all on, and a stretch into reverse."""
    slices = _slices(base.view(UNSIGNED.get(base.dtype, base.dtype)))
    count, most = len(slices), min(len(slices), max(2, FEW * len(slices) // base.numel()))

    def fill(tensor: torch.Tensor, nonce: int | None, alike: bool) -> None:
        out = _slices(tensor.view(UNSIGNED.get(tensor.dtype, tensor.dtype)))
        if nonce is None:
            out.copy_(slices)
            return
        by = 0 if alike else (nonce >> 32) % count
        out[by:].copy_(slices[: count - by])
        out[:by].copy_(slices[count - by :])
        start = nonce % (count - 1)
        stretch = out[start : start + 2 + (nonce >> 16) % (most - 1)]
        stretch.copy_(stretch.flip(0))

    return fill


def _is_float(tensor: torch.Tensor) -> bool:
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _span(layout: TensorLayout) -> int:
    """Elements in memory from the first to the last, those of complex numbers as pairs; 0 where there is none."""
    if not layout["bytes"]:
        return 0
    span = 1 + sum((n - 1) * s for n, s in zip(layout["shape"], layout["strides"], strict=True))
    return 2 * span if layout["dtype"].startswith("complex") else span


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All memory of a tensor from its first element to its last; complex numbers as pairs of floats."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return real(tensor.as_strided((span,), (1,))).reshape(-1)


def _slices(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's longest dimension first."""
    return tensor.movedim(max(range(tensor.dim()), key=lambda d: tensor.shape[d]), 0)
