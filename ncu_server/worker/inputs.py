"""The secret input sets of a problem: as `get_inputs` draws them, and sharper ones in the same range."""

from __future__ import annotations

from typing import Any

import torch

from ncu_server.worker.tensors import mapped

ROW_SCALES = (1.0, 0.5, 0.25, 0.0625)


def sharper(inputs: list[Any], generator: torch.Generator) -> list[Any]:
    """Floats pulled towards zero by random amounts, whole rows by more: same range, same signs, other statistics.

    Means, maxima and sums then differ from row to row, so that constant, subsampled or low-variance answers show.
    Where zero is outside the observed range the nearer end takes its place. Integers and booleans stay as drawn.
    """

    def pull(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor
        low, high = float(tensor.min()), float(tensor.max())
        pivot = min(max(0.0, low), high)
        factor = torch.rand(tensor.shape, generator=generator).pow_(2)
        if tensor.dim() > 1:
            rows = torch.tensor(ROW_SCALES)[torch.randint(len(ROW_SCALES), tensor.shape[:1], generator=generator)]
            factor *= rows.reshape(-1, *[1] * (tensor.dim() - 1))
        return ((tensor - pivot) * factor.to(tensor.dtype) + pivot).clamp_(low, high)

    changed: list[Any] = mapped(inputs, pull)
    return changed
