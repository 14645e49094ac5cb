"""The comparison, in a process that never saw the candidate's code: raw bytes against expected values."""

from __future__ import annotations

from typing import Any

import torch

from ncu_server.worker.tensors import Spec, read

CHUNK = 1 << 20


class Judge:
    """Compares two sets of tensors that lie in shared memory."""

    def compare(
        self, fds: list[int], expected: Spec, got: Spec, units: list[float | None], bound: float
    ) -> list[dict[str, Any]]:
        """For each output: its error in units, how many elements are outside the bound, and the worst of them.

        A unit of None asks for equality. NaN and infinities must stand where they are expected.
        """
        pairs = zip(read(fds[0], expected), read(fds[1], got), units, strict=True)
        return [_compare(want.reshape(-1), have.reshape(-1), unit, bound) for want, have, unit in pairs]


def _compare(want: torch.Tensor, have: torch.Tensor, unit: float | None, bound: float) -> dict[str, Any]:
    worst: dict[str, Any] = {
        "error": 0.0,
        "outside": 0,
        "total": want.numel(),
        "index": None,
        "want": None,
        "have": None,
    }
    for start in range(0, want.numel(), CHUNK):
        w, h = want[start : start + CHUNK], have[start : start + CHUNK]
        error = _errors(w, h, unit)
        outside = ~(error <= bound)
        worst["outside"] += int(outside.sum())
        at = int(error.argmax())
        if float(error[at]) > worst["error"] or (worst["index"] is None and bool(outside[at])):
            worst |= {"error": float(error[at]), "index": start + at, "want": float(w[at]), "have": float(h[at])}
    return worst


def _errors(want: torch.Tensor, have: torch.Tensor, unit: float | None) -> torch.Tensor:
    """Error of each element in units; infinity where equality, NaN or infinity is missed."""
    if unit is None:
        return torch.where(want == have, 0.0, torch.inf)
    w, h = want.double(), have.double()
    error = (h - w).abs_().div_(unit)
    special = ~(torch.isfinite(w) & torch.isfinite(h))
    if bool(special.any()):
        alike = (w == h) | (torch.isnan(w) & torch.isnan(h))
        error = torch.where(special, torch.where(alike, 0.0, torch.inf), error)
    return error
