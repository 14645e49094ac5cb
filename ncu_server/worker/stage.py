"""Where a model is timed: rotating input sets, fresh values for each call, the last output kept."""

from __future__ import annotations

from typing import Any

import torch

from ncu_server.worker.devices import Calls, Device
from ncu_server.worker.observe import State
from ncu_server.worker.tensors import Spec, flatten, placed, unflatten, write

MAX_SETS = 16
MAX_SET_BYTES = 2 << 30
DRIFTING = 1024  # elements that change from call to call: too few for a sample of the input to notice, all compared
STRETCH = 1 << 20  # elements of each tensor that an audit compares
MIX = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, as in SplitMix64: neighbouring calls get unlike nonces


class Drift:
    """Changes of one tensor, each taken back by the next: its values depend on the latest nonce alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        self._flat = _elements(tensor.as_strided((span,), (1,)))
        span = self._flat.numel()
        self._step = max(1, span // DRIFTING)
        self._row = tensor.shape[-1] if tensor.dim() else 1
        self._changed: torch.Tensor | None = None
        self._original: torch.Tensor | None = None

    def move(self, nonce: int, whole: bool = False) -> None:
        """Shrink every n-th value from a nonce-chosen start by a nonce-chosen factor, the `whole` by another as well:
        signs, zeros and range stay. Integers change places in their row, so that indices stay in bounds."""
        if self._changed is not None and self._original is not None:
            self._changed.copy_(self._original)
        few, whole = self._few(nonce), whole and self._flat.nbytes <= MAX_SET_BYTES
        self._changed = self._flat if whole else few
        self._original = self._changed.clone()
        if not self._flat.is_floating_point():
            turned = self._flat.view(-1, self._row)[:, (nonce >> 16) % self._row :] if whole else few
            turned.copy_(turned.flip(-1))
            return
        if whole:
            _shrink(self._flat, nonce >> 26)
        _shrink(few, nonce >> 16)

    def _few(self, nonce: int) -> torch.Tensor:
        """Every n-th float; of integers a stretch of one row."""
        if self._flat.is_floating_point():
            return self._flat[nonce % self._step :: self._step]
        length = min(self._row, DRIFTING)
        row = nonce % (self._flat.numel() // self._row) * self._row
        start = row + (nonce >> 16) % (self._row - length + 1)
        return self._flat[start : start + length]


def _shrink(values: torch.Tensor, nonce: int) -> None:
    narrow = values.element_size() == 1  # for floats of one byte torch has no arithmetic
    values.copy_((values.float() if narrow else values) * (0.75 + nonce % 1024 / 4096))


UNSIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _elements(flat: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that torch can move: complex numbers as pairs of floats, wide unsigned as signed."""
    if flat.is_complex():
        return torch.view_as_real(flat).reshape(-1)
    return flat.view(UNSIGNED.get(flat.dtype, flat.dtype))


def drifts(tensor: torch.Tensor) -> bool:
    """Whether a tensor may change: floats and complex numbers; integers that lie in rows and are in no order (an order
    may be needed)."""
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.numel())
    if tensor.dim() == 0 or tensor.numel() < 2 or tensor.shape[-1] < 2 or not tensor.is_contiguous():
        return False
    steps = (tensor if tensor.dtype.is_signed else tensor.long()).diff(dim=-1)  # unsigned ones never fall
    return bool((steps > 0).any()) and bool((steps < 0).any())


class Stage:
    """The timed side of reference and candidate: both see the same values in the last call of each block."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: Device,
        base: list[torch.Tensor],
        spec: Spec,
        state: State,
        strict: bool = False,
    ) -> None:
        """`base` are the host tensors of the inputs; enough sets are made to exceed the last-level cache.

        What calls change, of which `state` tells, is put back, untimed: a set of inputs before it is used again,
        buffers before each group of calls. `strict` is tensors.flatten's.
        """
        self._model, self._device, self._spec, self._strict = model, device, spec, strict
        self._state = state
        count = sets_for(spec["bytes"], device.cache_bytes())
        self.exceeds = count * spec["bytes"] >= 2 * device.cache_bytes()
        self._sets = [self._placed(base) for _ in range(count)]
        self._originals = [self._placed(base) for _ in range(count)] if state.inputs else None
        self._arguments = [unflatten(spec["structure"], s) for s in self._sets]
        self._drifts = [[Drift(t) for t in held if drifts(t)] for held in self._originals or self._sets]
        self._last: Any = None

    @property
    def sets(self) -> int:
        """How many input sets rotate; so many calls may share one reading of the clock."""
        return 1 if self._originals else len(self._sets)

    def block(self, nonce: int, count: int, group: int, inputs: str) -> list[float]:
        """Microseconds of a call, the mean of each of `count` groups of `group` calls.

        Each call gets values of its own, and the last one gets the same whatever the count. `inputs` are "cold" (sets
        that have left the cache, a few values changed), "new" (every value changed) or "warm" (the same set for all,
        which stays in the cache).
        """
        self._last = None
        total, warm = count * group, inputs == "warm"

        def place(i: int) -> int:
            return (nonce if warm else nonce - (total - 1 - i)) % len(self._sets)

        def before(index: int) -> None:
            self._state.reset()
            for i in range(index * group, (index + 1) * group):
                if not warm or i == 0:
                    self._renew(place(i), nonce + (total - 1 - i) * MIX, inputs == "new")
                elif self._originals:
                    self._restore(place(i))

        def after(index: int, out: Any) -> None:
            if index == count - 1:
                told = self._state.seen(out, self._arguments[place(total - 1)])
                structure, tensors = flatten(told, self._strict)
                # At once and in the caller's stream order: what is still being written by then is not an answer.
                self._last = unflatten(structure, [t.clone() for t in tensors])

        self._device.settle()
        calls = Calls(
            lambda i: self._model(*self._arguments[place(i)]), count, group, before, after, not warm and group == 1
        )
        with torch.no_grad():
            return self._device.clock(calls)

    def _renew(self, place: int, nonce: int, whole: bool) -> None:
        for drift in self._drifts[place]:
            drift.move(nonce, whole)
        self._restore(place)

    def _restore(self, place: int) -> None:
        if self._originals:
            for tensor, original in zip(self._sets[place], self._originals[place], strict=True):
                tensor.copy_(original)

    def _placed(self, base: list[torch.Tensor]) -> list[torch.Tensor]:
        device = self._device.torch_device
        return [placed(t, p, device) for t, p in zip(base, self._spec["tensors"], strict=True)]

    def snapshot(self, fd: int, window: float | None = None) -> Spec:
        """Write what the last timed call gave and changed; with a `window` (0 to 1) a stretch of each tensor there."""
        if window is not None:
            structure, tensors = flatten(self._last)
            return write(fd, unflatten(structure, [_stretch(t, window) for t in tensors]))
        spec = write(fd, self._last, self._strict)
        self._last = None
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
