"""The comparison, in a process that never saw the candidate's code: raw bytes against expected values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Protocol, TypeVar

import torch

from ncu_server.rules.comparison import ordered
from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker import device_memory
from ncu_server.worker.answers import Compared, Units
from ncu_server.worker.checking.effects import same
from ncu_server.worker.checking.tolerance import errors
from ncu_server.worker.tensors import read, real

CHUNK = {"cpu": 1 << 18, "cuda": 1 << 24}  # elements that are compared at once
FEW = 0.01
BLANK = 0xA5  # what a slot is filled with, whatever lay there before
FILLS = (0xFE, 0xFF)  # the bytes of fresh memory while a candidate is checked; see devices.poison
THREADS = 8
T = TypeVar("T")


class Map(Protocol):
    """As the built-in map."""

    def __call__(self, work: Callable[[int], T], starts: Iterable[int], /) -> Iterable[T]: ...


class Judge:
    """Compares two sets of tensors that lie in shared memory, each piece on one thread: beside builds that keep all
    cores busy, threads that wait for one another after each operation wait long."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(min(THREADS, len(os.sched_getaffinity(0))))

    def compare(
        self, fds: list[int], expected: Spec, got: Spec, units: list[Units | None], bound: float
    ) -> list[Compared]:
        """For each output: its error in units, how many elements are outside the bound, where, and the worst.

        Units of None ask for equality. NaN and infinities must stand where they are expected. Complex numbers are
        compared as pairs of real ones.
        """
        found = ordered(expected, got, read(fds[1], got))
        pairs = zip(read(fds[0], expected), found, units, strict=True)
        compared = [
            _compare(real(want), real(have).reshape(-1), unit, bound, self._each(want)) for want, have, unit in pairs
        ]
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return compared

    def _each(self, want: torch.Tensor) -> Map:
        return map if want.is_cuda else self._pool.map

    def slot(self, fds: list[int], size: int) -> None:
        """Make room on the device that holds nothing, for what one candidate gives."""
        if not torch.cuda.is_available() or device_memory.refusal():
            return
        descriptor, room = device_memory.make(size)
        room.fill_(BLANK)
        torch.cuda.synchronize()
        device_memory.hand(fds[0], descriptor, size)

    def identical(self, fds: list[int], one: Spec, other: Spec) -> bool:
        """Whether two sets of tensors are the same, bit by bit."""
        pairs = zip(read(fds[0], one), read(fds[1], other), strict=True)
        return all(same(a, b) for a, b in pairs)


def _compare(want: torch.Tensor, have: torch.Tensor, units: Units | None, bound: float, each: Map = map) -> Compared:
    """A few of the elements of a small part may be small by cancellation, what is left of large ones: they are held to
    the whole's unit, where they are no more than FEW of it. What a candidate gave is read once, by pieces: it may still
    write to memory of the device."""
    flat, size, parts = want.reshape(-1), CHUNK[want.device.type], units["levels"][1:] if units else []

    def piece(start: int) -> tuple[Compared, Compared | None, int]:
        right, given = flat[start : start + size], have[start : start + size]
        given = given.to(want.device, copy=given.is_cuda or given.device != want.device)
        found = _piece(want, right, given, start, units, bound)
        if units is None or not parts:
            return found, None, 0
        wholly = _piece(want, right, given, start, {"grain": units["grain"], "levels": units["levels"][:1]}, bound)
        return found, wholly, int(((right != 0) & (right.abs() <= parts[0][0])).sum())

    pieces = list(each(piece, range(0, want.numel(), size)))
    found = reduce(_joined, (one for one, _, _ in pieces), _agreeing(want))
    wholly = reduce(_joined, (one for _, one, _ in pieces if one), _agreeing(want))
    few = found["outside"] <= FEW * sum(small for _, _, small in pieces)
    return wholly if parts and found["outside"] and not wholly["outside"] and few else found


def _agreeing(shaped: torch.Tensor) -> Compared:
    return {
        "error": 0.0,
        "outside": 0,
        "total": shaped.numel(),
        "index": None,
        "want": None,
        "have": None,
        "shape": list(shaped.shape),
        "span": None,
        "zeros": 0,
        "nans": 0,
        "unwritten": 0,
    }


def _joined(one: Compared, other: Compared) -> Compared:
    """Of two pieces of one tensor, whose worst element is the worse of theirs."""
    return {
        **(other if other["error"] > one["error"] else one),
        "outside": one["outside"] + other["outside"],
        "span": _both(one["span"], other["span"]) if other["span"] is not None else one["span"],
        "zeros": one["zeros"] + other["zeros"],
        "nans": one["nans"] + other["nans"],
        "unwritten": one["unwritten"] + other["unwritten"],
    }


def _piece(
    shaped: torch.Tensor, want: torch.Tensor, have: torch.Tensor, start: int, units: Units | None, bound: float
) -> Compared:
    """The same of the elements from the flat index `start` on."""
    error = errors(want, have, units)
    most, at = (one.item() for one in error.max(0))
    found = _agreeing(shaped)
    found.update({"error": most, "index": start + at, "want": float(want[at]), "have": float(have[at])})
    if most > bound:
        outside = error > bound
        wrong = have[outside]
        found["outside"] = int(outside.sum())
        found["zeros"], found["nans"] = int((wrong == 0).sum()), int(torch.isnan(wrong.double()).sum())
        found["unwritten"] = _unwritten(wrong)
        found["span"] = _span(outside.nonzero().reshape(-1) + start, shaped.shape)
    return found


def _unwritten(values: torch.Tensor) -> int:
    """How many hold what fresh memory is filled with before a call; of single bytes and of integers nobody can say."""
    if not values.is_floating_point() or values.element_size() == 1:
        return 0
    raw = values.contiguous().view(torch.uint8).reshape(-1, values.element_size())
    return int(((raw == raw[:, :1]) & ((raw == FILLS[0]) | (raw == FILLS[1]))).all(1).sum())


def _span(at: torch.Tensor, shape: torch.Size) -> list[list[int]]:
    """The smallest box, as [first, last] of each dimension, that holds the flat indices."""
    ends = []
    for size in reversed(shape):
        places = at % size
        ends.append([int(places.min()), int(places.max())])
        at = at // size
    return ends[::-1]


def _both(known: list[list[int]] | None, span: list[list[int]]) -> list[list[int]]:
    """The smallest box that holds two."""
    return [[min(a, c), max(b, d)] for (a, b), (c, d) in zip(known or span, span, strict=True)]
