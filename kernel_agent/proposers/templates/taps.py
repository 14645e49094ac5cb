"""Which taps of a convolution's window meet which places: every convolution as some of stride 1.

With stride s a plain convolution reads place q * s + t * dilation - padding of its input for place q of its result and
tap t: the taps of one remainder by s, a group, read every s-th place of the input, and neighbours of q read
neighbours of those. A transposed convolution gives place q * s + t * dilation - padding of its result what it makes of
place q of its input: the places of one remainder by s, a phase, are met by some of the taps alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

Places = tuple[int, int, int]  # along depth, height and width


@dataclass(frozen=True, slots=True)
class Window:
    """The taps of one dimension: how many, the stride, the zeros before the first place, the places between taps."""

    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def met(self, tap: int, turned: bool) -> tuple[int, int]:
        """Of a tap the remainder, and the place of the input that it reads for the first place of the result."""
        if not turned:
            first = tap * self.dilation - self.padding
            return first % self.stride, first // self.stride
        remainder = (tap * self.dilation - self.padding) % self.stride
        return remainder, (remainder + self.padding - tap * self.dilation) // self.stride


@dataclass(frozen=True, slots=True)
class TapList:
    """The taps that a phase of the result has of a group of the input: each with its number in the weights and the
    place that it reads for the first place of the phase."""

    phase: int
    group: int
    taps: tuple[tuple[int, Places], ...]


@dataclass(frozen=True)
class Schedule:
    """All taps of a convolution of three dimensions in lists, phase by phase; each tap is in one list."""

    windows: tuple[Window, Window, Window]
    turned: bool

    @cached_property
    def _found(self) -> Mapping[Places, list[tuple[int, Places]]]:
        """The taps of each remainder."""
        found: dict[Places, list[tuple[int, Places]]] = {}
        for number, taps in enumerate(product(*(range(window.taps) for window in self.windows))):
            met = [window.met(tap, self.turned) for window, tap in zip(self.windows, taps, strict=True)]
            remainder, place = ((one[0][i], one[1][i], one[2][i]) for one in [met] for i in (0, 1))
            found.setdefault(remainder, []).append((number, place))
        return dict(sorted(found.items()))

    @cached_property
    def groups(self) -> tuple[Places, ...]:
        """The remainders of the input's places that some tap reads."""
        return ((0, 0, 0),) if self.turned else tuple(self._found)

    @cached_property
    def phases(self) -> tuple[Places, ...]:
        """The remainders of the result's places, those too that no tap meets."""
        depth, height, width = (range(window.stride if self.turned else 1) for window in self.windows)
        return tuple(product(depth, height, width))

    @cached_property
    def lists(self) -> tuple[TapList, ...]:
        """The lists, phase by phase, the taps in order of places."""
        made = list[TapList]()
        for remainder, taps in self._found.items():
            phase = self.phases.index(remainder) if self.turned else 0
            group = 0 if self.turned else self.groups.index(remainder)
            made.append(TapList(phase, group, tuple(sorted(taps, key=lambda tap: tap[1]))))
        return tuple(made)

    @cached_property
    def origin(self) -> Places:
        """The first place that any tap reads for the first place of the result, in each dimension."""
        depth, height, width = (min(places) for places in self._places)
        return depth, height, width

    @cached_property
    def halo(self) -> Places:
        """How many places more than results are read in each dimension."""
        depth, height, width = (max(places) - min(places) for places in self._places)
        return depth, height, width

    @property
    def _places(self) -> list[tuple[int, ...]]:
        """What the taps read for the first place of the result, by dimension."""
        return list(zip(*(place for one in self.lists for _, place in one.taps), strict=True))
