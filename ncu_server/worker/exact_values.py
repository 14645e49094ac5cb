"""What is expected of the reference, in float64: of the whole call, or of gigabytes in slices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Effects
from ncu_server.worker.calls import Call
from ncu_server.worker.checking.effects import visible
from ncu_server.worker.checking.float64 import SINGLE_TO_DOUBLE, Recast
from ncu_server.worker.checking.slices import ALIKE, CLOSE, Cut, agree, cuts
from ncu_server.worker.checking.tolerance import Run, deviation, truth
from ncu_server.worker.input_maker import UNFIT, InputMaker
from ncu_server.worker.tensors import Blank, copied, flatten, placed, read, real, unflatten, wide

T = TypeVar("T")
Change = Callable[[torch.Tensor], torch.Tensor]
"""What makes tensors exact."""
Answers = Mapping[Any, Any]
"""What calls of torch give instead; see precision.Recast."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact values of a tensor; where `apart`, by how much the reference's own are beyond them."""

    values: torch.Tensor
    apart: bool = False


class ExactValues(InputMaker):
    """The problem's model in double precision."""

    _whole = 0  # bytes that a call takes beside its inputs

    def _seen_again(self, fd: int, inputs: Spec, effects: Effects) -> tuple[Any, list[torch.Tensor]]:
        arguments = self._arguments(fd, inputs)
        out, own = self._run(self._model, arguments)
        structure, tensors = flatten(visible(out, arguments, own, effects["inputs"], effects["buffers"]))
        del arguments, out, own
        self._device.trim()
        truths, _ = self._in_double(functools.partial(self._seen, fd, inputs, effects))
        kept = []
        while tensors:
            got = real(tensors.pop(0))
            kept.append(Run(got, truth(got, truths.pop(0).values)).stored())
        return structure, kept

    def _in_double(self, seen: Callable[[Change, Answers], T]) -> tuple[T, str | None]:
        """What is `seen` in float64 throughout, or as far as the model runs in it; a note where it does not."""
        note = None
        for answers in (SINGLE_TO_DOUBLE, {}):
            try:
                return seen(wide, answers), None
            except UNFIT as fault:
                note = f"compared with the reference's own precision: it does not run in float64 ({fault})"
        return seen(lambda tensor: tensor, {}), note

    def _cut(self, fd: int, inputs: Spec, effects: Effects, outputs: list[torch.Tensor]) -> Cut | None:
        """A dimension along which calls for some indices give what the whole call gave there: two indices by
        themselves, and then all of them, as a model may treat others otherwise."""
        if effects["inputs"] or effects["buffers"]:
            return None
        tensors = read(fd, inputs)

        def same(cut: Cut, start: int, length: int, close: float) -> bool:
            some = copied(unflatten(inputs["structure"], cut.of(tensors, start, length)), self._device.torch_device)
            try:
                parts = flatten(self._run(self._model, some)[0])[1]
            except UNFIT:
                return False
            wholes = [t.narrow(cut.dimension, start, length) for t in outputs]
            pairs = zip(parts, wholes, strict=False)
            return len(parts) == len(wholes) and all(agree(part, whole, close) for part, whole in pairs)

        def holds(cut: Cut) -> bool:
            each = all(same(cut, start, 1, CLOSE) for start in cut.starts())
            return each and all(same(cut, *piece, ALIKE) for piece in cut.pieces(whole))

        whole = max(self._took["device_bytes"], sum(t.nbytes for t in outputs))

        took, found = self._took, next(filter(holds, cuts(tensors, outputs)), None)
        self._took = took
        return found

    def _seen_in_slices(
        self, cut: Cut, fd: int, inputs: Spec, outputs: list[torch.Tensor], change: Change, answers: Answers
    ) -> list[Truth]:
        """As `_seen`, of a call that changes nothing, beside what it gave."""
        whole = max(self._took["device_bytes"], sum(t.nbytes for t in outputs))
        apart = [_blank(real(t)) for t in outputs]
        for start, _, tree in self._slices(cut, read(fd, inputs), inputs, whole, change, answers):
            for one, got, part in zip(apart, outputs, flatten(tree)[1], strict=True):
                _note(one, real(got), real(wide(part)), cut.dimension, start)
        pairs = zip(apart, outputs, strict=True)
        return [Truth(real(got)) if one is None else Truth(one, apart=True) for one, got in pairs]

    def _give_in_slices(self, fd: int, cut: Cut, tensors: list[torch.Tensor], inputs: Spec) -> Spec:
        """Write what is expected of a call that changes nothing, of which the reference's own values are computed in
        slices, too."""
        blank = self._in_double(lambda *how: self._kept_in_slices(cut, tensors, inputs, *how))[0]
        return blank.give(fd)

    def _kept_in_slices(
        self, cut: Cut, tensors: list[torch.Tensor], inputs: Spec, change: Change, answers: Answers
    ) -> Blank:
        device, blank = self._device.torch_device, None
        try:
            for start, some, tree in self._slices(cut, tensors, inputs, 0, change, answers):
                structure, gots = flatten(self._run(self._model, copied(some, device))[0])
                pairs = [(real(got), real(wide(part))) for got, part in zip(gots, flatten(tree)[1], strict=True)]
                blank = blank or Blank(structure, [Run(*pair).like(cut.whole(pair[0])) for pair in pairs], device)
                for room, (got, exact) in zip(blank.tensors, pairs, strict=True):
                    room.narrow(cut.dimension, start, got.shape[cut.dimension]).copy_(truth(got, exact))
        except BaseException:
            if blank:
                blank.close()
            raise
        assert blank, "a cut has two indices at least"
        return blank

    def _slices(
        self, cut: Cut, tensors: list[torch.Tensor], inputs: Spec, whole: int, change: Change, answers: Answers
    ) -> Iterator[tuple[int, Call, Any]]:
        """Where each slice starts, its inputs, and what a changed model gives for them changed; a call takes `whole`
        bytes beside the inputs."""
        model, device = self._changed_copy(change), self._device.torch_device
        held = [*tensors, *self._model.parameters(), *self._model.buffers()]
        cutting = sum(tensors[place].nbytes for place in cut.inputs)
        length = cut.length((whole or self._whole) + cutting)
        self._whole = whole or self._whole
        uncut = {i: change(t.to(device)) for i, t in enumerate(tensors) if i not in cut.inputs}
        for start in range(0, cut.size, length):
            some = cut.of(tensors, start, min(length, cut.size - start))
            given = [uncut[i] if i in uncut else change(t.to(device)) for i, t in enumerate(some)]
            with Recast(answers, held) if answers else contextlib.nullcontext():
                out = self._run(model, unflatten(inputs["structure"], given))[0]
            yield start, unflatten(inputs["structure"], some), out
            del out, given

    def _seen(self, fd: int, inputs: Spec, effects: Effects, change: Change, answers: Answers) -> list[Truth]:
        """What is seen of a call with all tensors changed and with the `answers` of precision.Recast, in float64."""
        model, given, device = self._changed_copy(change), read(fd, inputs), self._device.torch_device
        held = [*given, *self._model.parameters(), *self._model.buffers()]
        pairs = zip(given, inputs["tensors"], strict=True)
        made = [placed(t, place, device, change(t.new_empty(0)).dtype) for t, place in pairs]
        arguments: Call = unflatten(inputs["structure"], made)
        del given, made
        with Recast(answers, held) if answers else contextlib.nullcontext():
            tensors = self._called(model, arguments, effects)
        return [Truth(real(wide(t))) for t in tensors]

    def _called(self, model: torch.nn.Module, arguments: Call, effects: Effects) -> list[torch.Tensor]:
        """What is seen of a call."""
        out, own = self._run(model, arguments)
        return flatten(visible(out, arguments, own, effects["inputs"], effects["buffers"]))[1]


def _blank(got: torch.Tensor) -> torch.Tensor | None:
    """Room for how far a tensor is from the exact values; None for one that has to be equal to its own."""
    if not got.is_floating_point():
        return None
    dtype = torch.float64 if got.dtype is torch.float64 else torch.float32
    return torch.empty(got.shape, dtype=dtype, device=got.device)


def _note(apart: torch.Tensor | None, got: torch.Tensor, exact: torch.Tensor, dimension: int, start: int) -> None:
    """Put the part of `apart` there that a slice's exact values make."""
    if apart is not None:
        place = (dimension, start, exact.shape[dimension])
        apart.narrow(*place).copy_(deviation(got.narrow(*place), exact))
