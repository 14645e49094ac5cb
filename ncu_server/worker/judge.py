"""The comparison, in a process that never saw the candidate's code: raw bytes against expected values."""

from __future__ import annotations

from typing import Any

import torch

from ncu_server.compare import ordered
from ncu_server.worker.budget import Units, errors
from ncu_server.worker.tensors import Spec, read, real

CHUNK = 1 << 18
FEW = 0.01


class Judge:
    """Compares two sets of tensors that lie in shared memory."""

    def compare(
        self, fds: list[int], expected: Spec, got: Spec, units: list[Units | None], bound: float
    ) -> list[dict[str, Any]]:
        """For each output: its error in units, how many elements are outside the bound, where, and the worst.

        Units of None ask for equality. NaN and infinities must stand where they are expected. Complex numbers are
        compared as pairs of real ones.
        """
        found = ordered(expected, got, read(fds[1], got))
        pairs = zip(read(fds[0], expected), found, units, strict=True)
        return [_compare(real(want), real(have).reshape(-1), unit, bound) for want, have, unit in pairs]


def _compare(want: torch.Tensor, have: torch.Tensor, units: Units | None, bound: float) -> dict[str, Any]:
    """A few of the elements of a small part may be small by cancellation, what is left of large ones: they are held to
    the whole's unit, where they are no more than FEW of it."""
    found = _held(want, have, units, bound)
    if units is None or not found["outside"] or not (parts := units["levels"][1:]):
        return found
    small = int(((want != 0) & (want.abs() <= parts[0][0])).sum())
    whole = _held(want, have, {"grain": units["grain"], "levels": units["levels"][:1]}, bound)
    return whole if not whole["outside"] and found["outside"] <= FEW * small else found


def _held(shaped: torch.Tensor, have: torch.Tensor, units: Units | None, bound: float) -> dict[str, Any]:
    """`span`: the first and last coordinate outside, for each dimension; `zeros` and `nans` are counted there."""
    want = shaped.reshape(-1)
    worst: dict[str, Any] = {
        "error": 0.0,
        "outside": 0,
        "total": want.numel(),
        "index": None,
        "want": None,
        "have": None,
        "shape": list(shaped.shape),
        "span": None,
        "zeros": 0,
        "nans": 0,
    }
    for start in range(0, want.numel(), CHUNK):
        w, h = want[start : start + CHUNK], have[start : start + CHUNK]
        error = errors(w, h, units)
        most, at = (found.item() for found in error.max(0))
        if most > bound:
            outside = error > bound
            worst["outside"] += int(outside.sum())
            worst["zeros"] += int((h[outside] == 0).sum())
            worst["nans"] += int(torch.isnan(h[outside].double()).sum())
            worst["span"] = _span(worst["span"], outside.nonzero().reshape(-1) + start, shaped.shape)
        if most > worst["error"]:
            worst |= {"error": most, "index": start + at, "want": float(w[at]), "have": float(h[at])}
    return worst


def _span(known: list[list[int]] | None, at: torch.Tensor, shape: torch.Size) -> list[list[int]]:
    """The smallest box, as [first, last] of each dimension, that holds what is known and the flat indices."""
    ends = [[int(places.min()), int(places.max())] for places in torch.unravel_index(at, shape)]
    if known is None:
        return ends
    return [[min(a, c), max(b, d)] for (a, b), (c, d) in zip(known, ends, strict=True)]
