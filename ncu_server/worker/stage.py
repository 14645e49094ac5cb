"""Where a model is timed: rotating input sets, fresh values before each block, the last output kept."""

from __future__ import annotations

from typing import Any

import torch

from ncu_server.worker.devices import Device
from ncu_server.worker.tensors import Spec, placed, unflatten, write

MAX_SETS = 16
MAX_SET_BYTES = 2 << 30
STRIDE = 61  # prime, so that the changed elements fall on every alignment


class Stage:
    """The timed side of reference and candidate: both see the same values in the same order."""

    def __init__(
        self, model: torch.nn.Module, device: Device, base: list[torch.Tensor], spec: Spec, restore: bool
    ) -> None:
        """`base` are the host tensors of the inputs; enough sets are made to exceed the last-level cache.

        `restore`: calls change their inputs, so each set is put back, untimed, before it is used again.
        """
        self._model, self._device, self._spec = model, device, spec
        count = sets_for(spec["bytes"], device.cache_bytes())
        self._sets = [self._placed(base) for _ in range(count)]
        self._originals = [self._placed(base) for _ in range(count)] if restore else None
        self._last: Any = None

    def block(self, nonce: int, count: int) -> list[float]:
        """Change one set by the nonce, then time `count` calls in microseconds; the last call uses the changed set."""
        self._last = None
        target = nonce % len(self._sets)
        for tensor in (self._originals or self._sets)[target]:
            refresh(tensor, nonce)
        arguments = [unflatten(self._spec["structure"], s) for s in self._sets]
        self._device.settle()

        def place(i: int) -> int:
            return (target - (count - 1 - i)) % len(arguments)

        def before(i: int) -> None:
            for tensor, original in zip(self._sets[place(i)], (self._originals or self._sets)[place(i)], strict=True):
                tensor.copy_(original)

        def call(i: int) -> Any:
            out = self._model(*arguments[place(i)])
            if i == count - 1:
                self._last = out
            return out

        with torch.no_grad():
            return self._device.clock(call, count, before if self._originals else None)

    def _placed(self, base: list[torch.Tensor]) -> list[torch.Tensor]:
        device = self._device.torch_device
        return [placed(t, p, device) for t, p in zip(base, self._spec["tensors"], strict=True)]

    def snapshot(self, fd: int, strict: bool) -> Spec:
        """Write the output of the last timed call."""
        spec = write(fd, self._last, strict)
        self._last = None
        return spec


def sets_for(set_bytes: int, cache_bytes: int) -> int:
    """How many input sets rotate: together twice the last-level cache, at most 16 sets and 2 GiB."""
    wanted = -(-2 * cache_bytes // max(set_bytes, 1))
    return max(1, min(wanted, MAX_SETS, MAX_SET_BYTES // max(set_bytes, 1)))


def refresh(tensor: torch.Tensor, nonce: int) -> None:
    """Shrink every 61st float from a nonce-chosen start by a nonce-chosen factor: signs, zeros and range stay."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return
    flat = tensor.as_strided((_storage_span(tensor),), (1,))
    flat[nonce % min(STRIDE, flat.numel()) :: STRIDE].mul_(0.75 + (nonce >> 16) % 1024 / 4096)


def _storage_span(tensor: torch.Tensor) -> int:
    span: int = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return span
