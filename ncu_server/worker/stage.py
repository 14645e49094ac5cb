"""Where a model is timed: rotating input sets, fresh values for each call, the last output kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ncu_server.worker.devices import SURE, USUAL, Calls, Device
from ncu_server.worker.observe import State
from ncu_server.worker.tensors import Spec, flatten, placed, real, unflatten, write

MAX_SETS = 16
MAX_SET_BYTES = 2 << 30
DRIFTING = 1024  # elements that change from call to call: too few for a sample of the input to notice, all compared
STRETCH = 1 << 18  # elements of each tensor that an audit compares
MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, as in SplitMix64: neighbouring calls get unlike nonces


class Drift:
    """Sparse changes of one tensor, each taken back by the next: its values depend on the latest nonce alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        self._flat = _elements(tensor.as_strided((span,), (1,)))
        self._step = max(1, self._flat.numel() // DRIFTING)
        self._tensor = tensor
        self._limits = _range(tensor) if self._flat.is_floating_point() else None
        self._changed: torch.Tensor | None = None
        self._original: torch.Tensor | None = None

    def move(self, nonce: int) -> None:
        """Shrink every n-th value from a nonce-chosen start by a nonce-chosen factor: signs, zeros and the range that
        was drawn stay. Integers change places instead."""
        if self._changed is not None and self._original is not None:
            self._changed.copy_(self._original)
        self._changed = self._flat[nonce % self._step :: self._step] if self._limits else self._stretch(nonce)
        self._original = self._changed.clone()
        if self._limits is None:
            self._changed.copy_(self._original.flip(0))
            return
        narrow = self._changed.element_size() == 1  # for floats of one byte torch has no arithmetic
        moved = (self._original.float() if narrow else self._original) * (0.75 + (nonce >> 16) % 1024 / 4096)
        self._changed.copy_(moved.clamp_(*self._limits))

    def _stretch(self, nonce: int) -> torch.Tensor:
        """Neighbouring slices, to be reversed: what a column may hold depends on the column, so they move as wholes."""
        slices = _slices(_elements(self._tensor))
        most = min(len(slices), max(2, DRIFTING * len(slices) // slices.numel()))
        start = nonce % (len(slices) - 1)
        return slices[start : start + 2 + (nonce >> 16) % (most - 1)]


UNSIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that torch can move: complex numbers as pairs of floats, wide unsigned as signed."""
    if tensor.is_complex():
        return torch.view_as_real(tensor).reshape(-1)
    return tensor.view(UNSIGNED.get(tensor.dtype, tensor.dtype))


def _range(tensor: torch.Tensor) -> tuple[float, float]:
    """The least and the largest number in a tensor of floats or complex numbers."""
    numbers = real(tensor)
    low, high = (numbers.float() if numbers.element_size() == 1 else numbers).nan_to_num().aminmax()
    return float(low), float(high)


def _slices(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's longest dimension first."""
    return tensor.movedim(max(range(tensor.dim()), key=lambda d: tensor.shape[d]), 0)


def drifts(tensor: torch.Tensor) -> bool:
    """Whether a tensor may change: floats and complex numbers; integers of which no column along the longest dimension
    is in order (an order may be needed)."""
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.numel())
    if tensor.dim() == 0 or tensor.numel() < 2:
        return False
    steps = _slices(tensor if tensor.dtype.is_signed else tensor.long()).diff(dim=0)  # unsigned ones never fall
    rises, falls = (steps > 0).any(dim=0), (steps < 0).any(dim=0)
    return bool((rises == falls).all()) and bool(rises.any())


class Sets:
    """Input sets on the device: what moves in each, and what it was where calls change it."""

    def __init__(self, given: list[list[torch.Tensor]], spec: Spec, still: Sequence[int], kept: bool) -> None:
        self._held = given
        self._originals = [[t.clone() for t in held] for held in given] if kept else None
        self.arguments = [unflatten(spec["structure"], held) for held in given]
        self._drifts = [
            [Drift(t) for i, t in enumerate(held) if i not in still and drifts(t)] for held in self._originals or given
        ]

    def __len__(self) -> int:
        return len(self._held)

    def move(self, place: int, nonce: int) -> None:
        """Give one set the values that belong to a nonce."""
        for drift in self._drifts[place]:
            drift.move(nonce)
        self.restore(place)

    def restore(self, place: int) -> None:
        """Take back what a call has changed."""
        if self._originals:
            for tensor, original in zip(self._held[place], self._originals[place], strict=True):
                tensor.copy_(original)


class Stage:
    """The timed side of reference and candidate: both see the same values in the call of each block that is kept."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: Device,
        base: list[torch.Tensor],
        spec: Spec,
        state: State,
        still: Sequence[int] = (),
        strict: bool = False,
    ) -> None:
        """`base` are the host tensors of the inputs; enough sets are made to exceed the last-level cache.

        What calls change, of which `state` tells, is put back, untimed: a set of inputs before it is used again,
        buffers before each group of calls. `still` are the inputs that stay as they are. `strict` is tensors.flatten's.
        """
        self._model, self._device, self._state = model, device, state
        self._still, self._strict = still, strict
        count = sets_for(spec["bytes"], device.cache_bytes())
        self.exceeds = count * spec["bytes"] >= 2 * device.cache_bytes()
        self._sets = self._made([base] * count, spec)
        self._unseen: Sets | None = None
        self._kept: Any = None

    @property
    def sets(self) -> int:
        """How many input sets rotate; so many calls may share one reading of the clock."""
        return 1 if self._state.inputs else len(self._sets)

    def take_unseen(self, given: list[list[torch.Tensor]], spec: Spec) -> None:
        """Take input sets (host tensors) that no call has seen, for one block."""
        self._unseen = self._made(given, spec)

    def block(self, nonce: int, count: int, group: int, inputs: str) -> list[float]:
        """Microseconds of a call, the mean of each of `count` groups of `group` calls.

        Each call gets values of its own. One, which the nonce chooses, is kept; it gets the same whatever the count.
        `inputs` are "cold" (sets that have left the cache, a few values changed), "warm" (the same set for all, which
        stays in the cache) or "unseen": each set of the latest `take_unseen` in equally many calls, the first of them
        as it was given, the others with a few values changed, all out of the cache.
        """
        self._kept, warm, unseen = None, inputs == "warm", inputs == "unseen"
        sets = self._unseen if unseen and self._unseen else self._sets
        kept, visits = (nonce >> 8) % count * group + nonce % group, max(1, count // len(sets))

        def place(i: int) -> int:
            return (i // visits if unseen else nonce if warm else nonce + i - kept) % len(sets)

        def before(index: int) -> None:
            self._state.reset()
            if unseen:
                self._device.evict()
            for i in range(index * group, (index + 1) * group):
                if (warm and i) or (unseen and i % visits == 0):
                    sets.restore(place(i))
                else:
                    sets.move(place(i), nonce if warm else nonce + (i - kept) * MIX)

        def after(index: int, out: Any) -> None:
            if index == kept // group:
                told = self._state.seen(out, sets.arguments[place(kept)])
                structure, tensors = flatten(told, self._strict)
                # At once and in the caller's stream order: what is still being written by then is not an answer.
                self._kept = unflatten(structure, [t.clone() for t in tensors])

        self._device.settle()
        cold = not warm and group == 1
        lead = SURE if unseen else USUAL
        calls = Calls(
            lambda i: self._model(*sets.arguments[place(i)]), count, group, before, after, cold, kept % group, lead
        )
        with torch.no_grad():
            times = self._device.clock(calls)
        self._unseen = None
        return times

    def _made(self, given: list[list[torch.Tensor]], spec: Spec) -> Sets:
        device = self._device.torch_device
        there = [[placed(t, p, device) for t, p in zip(base, spec["tensors"], strict=True)] for base in given]
        return Sets(there, spec, self._still, bool(self._state.inputs))

    def snapshot(self, fd: int, window: float | None = None) -> Spec:
        """Write what the kept call gave and changed; with a `window` (0 to 1) a stretch of each tensor there."""
        if window is not None:
            structure, tensors = flatten(self._kept)
            return write(fd, unflatten(structure, [_stretch(t, window) for t in tensors]))
        spec = write(fd, self._kept, self._strict)
        self._kept = None
        return spec


def _stretch(tensor: torch.Tensor, window: float) -> torch.Tensor:
    flat = tensor.reshape(-1)
    length = min(flat.numel(), STRETCH)
    start = int(window * (flat.numel() - length))
    return flat[start : start + length]


def sets_for(set_bytes: int, cache_bytes: int) -> int:
    """How many input sets rotate: together twice the last-level cache, at most 16 sets and 2 GiB."""
    wanted = -(-2 * cache_bytes // max(set_bytes, 1))
    return max(1, min(wanted, MAX_SETS, MAX_SET_BYTES // max(set_bytes, 1)))
