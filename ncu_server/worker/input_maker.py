"""Secret inputs of a problem: as its functions give them, and what the judge makes of those."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Chosen, Drawn, How, Sharpened
from ncu_server.worker.calls import Call
from ncu_server.worker.checking.effects import same
from ncu_server.worker.checking.holes import shows
from ncu_server.worker.checking.tolerance import degenerate, finite, units
from ncu_server.worker.checking.varied import chosen
from ncu_server.worker.dense import named
from ncu_server.worker.problem import MISREAD
from ncu_server.worker.problem_model import ProblemModel
from ncu_server.worker.tensors import copied, flatten, give, placed, put, read, real, spec_of, unflatten, wide
from ncu_server.worker.timing.input_sets import far, holed, sharper, stretched
from ncu_server.worker.timing.mutation import FRUGAL_BASE_BYTES, MIX, Draw
from ncu_server.worker.timing.side import trimmed

TRIED, TRIED_S = (2, 100), 0.1  # changes of a problem's inputs that its model is tried with: so many, for so long
# What a model raises that cannot do with another precision than its own.
UNFIT = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, ArithmeticError)


class InputMaker(ProblemModel):
    """Draws inputs and changes them, as far as the problem's model does for what was made."""

    @trimmed
    def draw(self, fds: list[int], variant: str, input_seed: int, on_host: bool = False) -> Drawn:
        """Make the inputs that the function `variant` gives under the secret seed, on the device where it can.

        Where they may stand for several calls, the first of them in which the model comes to its end.
        """
        structure, moved, apart = self._drawn(variant, input_seed)
        why = self._problem.refuses or "it makes them there, whatever the default device"
        return {
            "inputs": (put if on_host else give)(fds[0], structure, moved),
            "note": f"the inputs of {variant} are drawn on the host: {why}" if apart else None,
        }

    @trimmed
    def draws_again(self, fds: list[int], inputs: Spec, variant: str, input_seed: int) -> bool:
        """Whether the function `variant` gives the inputs once more under their seed."""
        structure, moved, _ = self._drawn(variant, input_seed)
        return bool(json.loads(json.dumps(spec_of(structure, moved))) == inputs) and all(
            map(same, moved, read(fds[0], inputs))
        )

    def _drawn(self, variant: str, input_seed: int) -> tuple[Any, list[torch.Tensor], bool]:
        """The flattened inputs on the device, and whether some were made elsewhere."""
        device = self._device.torch_device
        calls = self._problem.drawn_on(device, variant, input_seed, self._model.forward)
        with named(variant, "input", "give dense ones, and make it of them in forward"):
            chosen = next(filter(self._comes_to_its_end, calls[:-1]), calls[-1])
            structure, tensors = flatten(chosen)
        return structure, [t.to(device) for t in tensors], any(t.device.type != device for t in tensors)

    def _comes_to_its_end(self, call: Call) -> bool:
        try:
            self._run(self._model, copied(call, self._device.torch_device))
        except torch.OutOfMemoryError:
            raise
        except MISREAD:
            return False
        return True

    @trimmed
    def lend(self, fds: list[int], inputs: Spec) -> None:
        """Copy the inputs to memory that one candidate alone is given."""
        give(fds[1], inputs["structure"], read(fds[0], inputs))

    @trimmed
    def sharpen(
        self, fds: list[int], variant: str, draw_seed: int, input_seed: int, still: list[int], how: How | None = None
    ) -> Sharpened:
        """Write a sharper set made of what `draw` gives under `draw_seed`, but for what is `still`.

        Where a constant would pass for the reference's output on it, a set on which none would is looked for far from
        what was drawn, which is then drawn once more. `how` says which of them it is; where it is given, nothing is
        called.
        """
        structure, given, _ = self._drawn(variant, draw_seed)
        if how == "32 times as large":
            return {"inputs": self._given(fds[0], structure, stretched(given)), "how": how}
        made = sharper(given, self._generator(input_seed))
        first = [old if place in still else new for place, (old, new) in enumerate(zip(given, made, strict=True))]
        del given, made
        if not how and not self._tells(unflatten(structure, first)):
            beyond = stretched(self._drawn(variant, draw_seed)[1])
            if self._tells(unflatten(structure, beyond)):
                return {"inputs": self._given(fds[0], structure, beyond), "how": "32 times as large"}
        return {"inputs": self._given(fds[0], structure, first), "how": "sharper"}

    def _given(self, fd: int, structure: Any, tensors: list[torch.Tensor]) -> Spec:
        """As tensors.give, with nothing freed that the device is held for."""
        self._device.trim()
        return give(fd, structure, tensors)

    @trimmed
    def hole(self, fds: list[int], inputs: Spec, input_seed: int, still: list[int]) -> Spec | None:
        """Write the first memfd's set with NaN in some rows of its floats to the second; None where the reference does
        not say what comes of NaN. See worker.checking.holes."""
        given, generator = read(fds[0], inputs), self._generator(input_seed)
        made = holed(given, generator)
        kept = [old if place in still else new for place, (old, new) in enumerate(zip(given, made, strict=True))]
        numbers, holes = unflatten(inputs["structure"], given), unflatten(inputs["structure"], kept)
        device = self._device.torch_device
        with contextlib.suppress(*UNFIT):
            if shows(lambda tree: self._run(self._model, copied(tree, device))[0], numbers, holes):
                return give(fds[1], inputs["structure"], kept)
        return None

    @trimmed
    def choose(self, fds: list[int], inputs: Spec, structures: list[Any]) -> Chosen:
        """Which of these trees of the same tensors, with another plain value, the reference takes; one that changes its
        output before others. `taken` is None, and `why` says why, where it takes none; see worker.checking.varied."""

        def run(structure: Any) -> Any:
            return self._run(self._model, self._arguments(fds[0], {**inputs, "structure": structure}))[0]

        return chosen(run, inputs["structure"], structures)

    @trimmed
    def stretch(self, fds: list[int], inputs: Spec, still: list[int]) -> Spec | None:
        """Write a set made of the first memfd's to the second, whose floats lie far beyond; see input_sets.far."""
        made = far(read(fds[0], inputs), still)
        return give(fds[1], inputs["structure"], made) if made else None

    @trimmed
    def mutate(self, fds: list[int], inputs: Spec, still: list[int], nonce: int) -> Spec:
        """Write a set made of the first memfd's to the second, one of those that are alike; see mutation.Draw.fill."""
        given = read(fds[0], inputs)
        device = self._device.torch_device
        draw = Draw(given, inputs, device, still, kept=False)
        held = [placed(t, layout, device) for t, layout in zip(given, inputs["tensors"], strict=True)]
        draw.fill(held, nonce, alike=True)
        return give(fds[1], inputs["structure"], held)

    @trimmed
    def still(self, fds: list[int], inputs: Spec) -> list[int]:
        """The inputs of which no value may change, since the reference fails where some have: raises (a matrix that has
        to be positive definite, say) or gives no numbers where it gave such."""
        moved = range(len(inputs["tensors"]))
        if not self._fails(fds[0], inputs, moved):
            return []
        return [i for i in moved if self._fails(fds[0], inputs, [i])] or list(moved)

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self._device.torch_device).manual_seed(seed)

    def _tells(self, made: list[Any]) -> bool:
        """Whether no constant would pass for what the reference gives; false where these inputs are none for it."""
        arguments = copied(made, self._device.torch_device)
        try:
            tensors = [real(t) for t in flatten(self._run(self._model, arguments)[0])[1]]
        except UNFIT:
            return False
        allowed = [units(t, wide(t) if t.element_size() == 1 else t) for t in tensors]
        return (finite(tensors) or not all_finite(made)) and degenerate(tensors, allowed) is None

    def _fails(self, fd: int, inputs: Spec, moved: Sequence[int]) -> bool:
        numbers = all_finite(self._run(self._model, self._arguments(fd, inputs))[0])
        arguments, given = self._arguments(fd, inputs), read(fd, inputs)
        still = [i for i in range(len(given)) if i not in moved]
        draw = Draw(given, inputs, self._device.torch_device, still, kept=True, bases=FRUGAL_BASE_BYTES)
        began = time.monotonic()
        for n in range(TRIED[1]):
            if n >= TRIED[0] and time.monotonic() - began > TRIED_S:
                break
            draw.fill(flatten(arguments)[1], n * MIX)
            try:
                out = self._run(self._model, arguments)[0]
            except UNFIT:
                return True
            if numbers and not all_finite(out):
                return True
            del out  # not two at once
        return False


def all_finite(tree: Any) -> bool:
    return finite([real(t) for t in flatten(tree)[1]])
