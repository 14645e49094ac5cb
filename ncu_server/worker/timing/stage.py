"""Where a model is timed: rotating input sets, fresh values for each call, the last output kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Inputs, Staged
from ncu_server.worker.checking.effects import State
from ncu_server.worker.tensors import flatten, give, placed, put, unflatten
from ncu_server.worker.timing.devices import SURE, USUAL, Calls, Device
from ncu_server.worker.timing.mutation import BASE_BYTES, FRUGAL_BASE_BYTES, MIX, Draw

MAX_SETS = 16
MAX_SET_BYTES = 2 << 30
STRETCH = 1 << 18  # elements of each tensor that an audit compares
# Of 16 calls, how many get values that are alike (see Draw.fill), as does the call before them in the same memory: who
# recognises inputs by a sample is wrong for the second of them, who computes anew only what differs gains little, and a
# call's values do not tell whether it is kept.
ALIKE, ALIKE_KEPT = 1, 8


Write = Callable[[int, Any, list[torch.Tensor]], Spec]
"""How a flattened tree is put into memory: tensors.put, or by a process of ours tensors.give."""


@dataclass(frozen=True, slots=True)
class Block:
    """Which memory and which values each call of a block gets, by its number; `kept` is one that the nonce chooses.

    There are `sets` of tensors, and `draws` that come in turn where `inputs` are "unseen".
    """

    nonce: int
    count: int
    group: int
    inputs: Inputs
    sets: int
    draws: int

    @property
    def kept(self) -> int:
        return (self.nonce >> 8) % self.count * self.group + self.nonce % self.group

    @property
    def cycle(self) -> int:
        """Calls in which all draws come once."""
        return max(self.draws, self.group)

    def place(self, i: int) -> int:
        if self.inputs == "unseen":
            return i % self.cycle % self.sets
        return (self.nonce if self.inputs == "warm" else self.nonce + i - self.kept) % self.sets

    def values(self, i: int) -> tuple[int, bool]:
        """The nonce whose values call `i` gets, and whether they are alike (see Draw.fill)."""
        if self.inputs == "warm":
            return self.nonce, False
        return self._own(i), self.inputs == "cold" and (self._picked(i) or self._picked(i + self.sets))

    def _own(self, i: int) -> int:
        return self.nonce + (i - self.kept) * MIX

    def _picked(self, i: int) -> bool:
        return self._own(i) * MIX % 2**64 >> 60 < (ALIKE_KEPT if i == self.kept else ALIKE)


class Stage:
    """The timed side of reference and candidate: both see the same values in the call of each block that is kept."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: Device,
        given: list[torch.Tensor],
        spec: Spec,
        state: State,
        still: Sequence[int] = (),
        looks: Callable[[bool], None] | None = None,
        frugal: bool = False,
    ) -> None:
        """`given` are the inputs; enough sets are made to exceed the last-level cache. `frugal`: those of gigabytes are
        this side's own and serve as they lie, fewer values are kept as drawn, nothing is held between blocks but inputs
        and what is kept of a call, and a side of ours makes that anew when it is asked for.

        What calls change, of which `state` tells, is put back, untimed: a set of inputs before it is used again,
        buffers before each call. `still` are the inputs that stay as they are. `looks` is
        called after each call of a candidate (see Intact.check), of which outputs are flattened strictly.
        """
        self._model, self._device, self._state = model, device, state
        self._still, self._looks, self._strict, self.frugal = still, looks, looks is not None, frugal
        self._draw = self._drawn(given, spec)
        count, name = sets_for(spec["bytes"], device.cache_bytes()), device.torch_device
        self.exceeds = count * spec["bytes"] >= 2 * device.cache_bytes()

        def laid(place: int) -> torch.Tensor:
            tensor, layout = given[place], spec["tensors"][place]
            as_it_lies = frugal and count == 1 and list(tensor.stride()) == layout["strides"]
            return tensor if as_it_lies and self._draw.leaves(place) else placed(tensor, layout, name)

        self._held = [[laid(place) for place in range(len(given))] for _ in range(count)]
        self._arguments = [unflatten(spec["structure"], held) for held in self._held]
        self._unseen: list[Draw] = []
        self._given = self._draw, 0, False
        self._kept: Any = None
        device.trim()

    @property
    def sets(self) -> int:
        """How many input sets rotate; so many calls may share one reading of the clock."""
        return 1 if self._state.inputs or self._state.buffers else len(self._held)

    @property
    def changes(self) -> bool:
        """See Draw.changes."""
        return self._draw.changes

    @property
    def example(self) -> Any:
        """Arguments as calls get them."""
        return self._arguments[0]

    @property
    def rotation(self) -> Staged:
        """How its inputs rotate."""
        return {
            "sets": self.sets,
            "exceeds": self.exceeds,
            "flushes": self._device.flushes,
            "changes": self.changes,
        }

    def hollow(self) -> None:
        """Let go of all values; the example keeps its shapes, strides and dtypes, and holds no memory."""
        for tensor in flatten(self._arguments)[1]:
            tensor.untyped_storage().resize_(0)
        self._held, self._unseen, self._kept = self._held[:1], [], None
        del self._draw, self._given

    def take_unseen(self, given: list[list[torch.Tensor]], spec: Spec) -> None:
        """Take draws that no call has seen, for one block."""
        self._unseen = [self._drawn(one, spec) for one in given]

    def block(self, nonce: int, count: int, group: int, inputs: Inputs) -> list[float]:
        """Microseconds of a call, the mean of each of `count` groups of `group` calls.

        Each call gets values of its own. One, which the nonce chooses, is kept; it gets the same whatever the count.
        `inputs` are "cold" (sets that have left the cache), "warm" (the same set for all, which stays in the cache) or
        "unseen": the draws of the latest `take_unseen` in turn, out of the cache and in the memory where others lay,
        after as many calls with the usual one, which are the first ones after a pause.
        """
        self._kept, warm, unseen = None, inputs == "warm", inputs == "unseen"
        draws = self._unseen if unseen else [self._draw]
        calls = Block(nonce, count, group, inputs, len(self._held), len(draws))
        kept, cycle = calls.kept, calls.cycle
        ahead = 0 if warm or unseen or group > 1 or self._device.flushes else len(self._held) // 2

        def ready(i: int) -> None:
            draw, held = draws[i % cycle % len(draws)], self._held[calls.place(i)]
            if unseen and i < cycle:
                draw = self._draw
            elif unseen and (i < 2 * cycle or len(self._held) < cycle):
                draw.lay(held)
            if not warm or i == 0 or self._state.inputs:
                draw.fill(held, *calls.values(i))
            if i == kept or warm:
                self._given = draw, *calls.values(i)

        def before(index: int) -> None:
            self._state.reset()
            first, last = index * group + (ahead if index else 0), (index + 1) * group + ahead
            for i in range(first, min(last, count * group)):
                ready(i)
            if unseen:
                self._device.evict()

        def after(index: int, out: Any) -> None:
            if self._looks:
                # Warm blocks are held against the time that the process computes: no long look falls into them.
                self._looks(index == kept // group and not warm)
            if index == kept // group:
                if self._recalls:
                    return
                structure, tensors = flatten(self._state.seen(out, self._arguments[calls.place(kept)]), self._strict)
                # At once and in the caller's stream order: what is still being written by then is not an answer.
                # Flat, and never put together again: the classes of a candidate's containers run no code for it.
                self._kept = structure, [t.clone() for t in tensors]

        arguments = [self._arguments[calls.place(i)] for i in range(count * group)]
        self._settle(*arguments[0])
        cold, lead = not warm and group == 1, SURE if unseen else USUAL
        with torch.no_grad():
            one = lambda i: self._model(*arguments[i][0], **arguments[i][1])  # noqa: E731
            call = Calls(one, count, group, before, after, cold, kept % group, lead)
            times = self._device.clock(call)
        if unseen:
            self._unseen = []
            for held in self._held:
                self._draw.lay(held)
        if self.frugal:
            self._device.release()
        return times

    def _settle(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Have the allocator hold what a call takes, where the block before has given that back."""
        if self.frugal:
            with torch.no_grad():
                self._model(*args, **kwargs)
            if self._looks:
                self._looks(True)
        self._device.settle()

    @property
    def _recalls(self) -> bool:
        return self.frugal and self._looks is None

    def _drawn(self, given: list[torch.Tensor], spec: Spec) -> Draw:
        bases = FRUGAL_BASE_BYTES if self.frugal else BASE_BYTES
        return Draw(given, spec, self._device.torch_device, self._still, bool(self._state.inputs), bases)

    def snapshot(self, fd: int, window: float | None = None, last: bool = True, write: Write = put) -> Spec:
        """Write what the kept call gave and changed, whole, after which it is forgotten if this was the `last` look;
        with a `window` (0 to 1) a stretch of each tensor there."""
        if window is None:
            self._device.trim()  # what calls had is free, and lies beside what is written now
        with self._told() as (structure, tensors):
            if window is not None:
                return write(fd, structure, [_stretch(t, window) for t in tensors])
            spec = write(fd, structure, tensors)
        if last:
            del tensors
            self._kept = None
            self._device.trim()
        return spec

    @contextlib.contextmanager
    def _told(self) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        """What the kept call gave and changed; inside, a frugal side of ours has it by the same call."""
        if not self._recalls:
            yield self._kept
            return
        with self.kept_laid() as arguments, torch.no_grad():
            self._state.reset()
            yield flatten(self._state.seen(self._model(*arguments[0], **arguments[1]), arguments))

    @contextlib.contextmanager
    def kept_laid(self) -> Iterator[Any]:
        """Inside, the first of the sets is what the kept call was given, before it changed any of it."""
        draw, nonce, alike = self._given
        draw.lay(self._held[0])
        draw.fill(self._held[0], nonce, alike)
        try:
            yield self._arguments[0]
        finally:
            self._draw.lay(self._held[0])

    def lend(self, fd: int) -> Spec:
        """Give a copy of the first of the sets."""
        return give(fd, *flatten(self._arguments[0]))

    def kept_inputs(self, fd: int) -> Spec:
        """Give what the kept call was given; see `kept_laid`."""
        with self.kept_laid() as arguments:
            return give(fd, *flatten(arguments))


def _stretch(tensor: torch.Tensor, window: float) -> torch.Tensor:
    flat = tensor.reshape(-1)
    length = min(flat.numel(), STRETCH)
    start = int(window * (flat.numel() - length))
    return flat[start : start + length]


def sets_for(set_bytes: int, cache_bytes: int) -> int:
    """How many input sets rotate: together twice the last-level cache, at most 16 sets and 2 GiB."""
    wanted = -(-2 * cache_bytes // max(set_bytes, 1))
    return max(1, min(wanted, MAX_SETS, MAX_SET_BYTES // max(set_bytes, 1)))
