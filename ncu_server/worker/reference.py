"""The trusted side: computes what is expected of secret inputs, and is timed as the baseline."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

import torch

from ncu_server.rules.precision import Precision
from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Difference, Effects, Expected, Measured, Seen, Slices, Staged, Units
from ncu_server.worker.calls import Call
from ncu_server.worker.checking.effects import changed, restore, same, state, visible
from ncu_server.worker.checking.full_float32 import Watch, full_float32
from ncu_server.worker.checking.parameters import differences, take, tensors_of
from ncu_server.worker.checking.rounded import RoundedOperands
from ncu_server.worker.checking.slices import Cut
from ncu_server.worker.checking.tolerance import Run, alike, budget, degenerate, truth
from ncu_server.worker.dense import named
from ncu_server.worker.exact_values import ExactValues, Truth
from ncu_server.worker.generators import generators
from ncu_server.worker.input_maker import UNFIT, all_finite
from ncu_server.worker.problem_model import held_bytes
from ncu_server.worker.tensors import apart, flatten, give, read, real, spec_of, unflatten
from ncu_server.worker.timing.devices import GIANT
from ncu_server.worker.timing.side import TimedSide, trimmed
from ncu_server.worker.timing.stage import Stage

IN_ONE_BYTES = 1 << 30
"""A call that takes up to this much is computed in float64 at once."""
SHARED_BYTES = 64 << 20  # of parameters: less is copied for each call
OUTPUT = ("Model.forward", "output", "return dense ones (such as its values and indices)")
UNLIKE = (
    "two calls on the same inputs differ; make the model deterministic (no random numbers, and none that lie in memory "
    "which is never written)"
)


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of a call when its exact values are asked for."""

    effects: Effects
    watch: Watch


@dataclass(frozen=True, slots=True)
class Judged:
    """What is expected of each tensor, the error budgets, what to note, and the cut of the exact values."""

    expected: list[torch.Tensor]
    budgets: list[tuple[Units, Precision] | None]
    note: str | None
    cut: Cut | None

    @property
    def allowed(self) -> list[Units | None]:
        """The units of error."""
        return [found and found[0] for found in self.budgets]


class Reference(ExactValues, TimedSide):
    """One problem on one device; verbs come in the order open_reference, draw, expect or stage, block."""

    _write = staticmethod(give)
    _repeated = False  # whether two calls have agreed in the model's mode

    @trimmed
    def measure_call(self, fds: list[int], inputs: Spec) -> Measured:
        """What one call takes of the device, and how its exact values can be computed."""
        restore(self._model, self._buffers, self._buffers)
        before, arguments = unflatten(inputs["structure"], read(fds[0], inputs)), self._arguments(fds[0], inputs)
        out, model = self._run(self._model, arguments)
        memory = self._memory()
        with named(*OUTPUT):
            outputs = flatten(out)[1]
        effects = self._effects(before, arguments, model)
        del arguments, model
        watch = Watch(self._device.torch_device)
        with watch.watching():  # of calls on slices, whose operators are the same
            cut = self._cut(fds[0], inputs, effects, outputs)
        return {
            "memory": memory,
            "outputs": sum(t.nbytes for t in outputs),
            "parameters": held_bytes(self._model),
            "sliceable": cut is not None,
            "narrow": watch.narrow is not None,
        }

    @trimmed
    def expect(self, fds: list[int], inputs: Spec, effects: Effects | None = None) -> Expected:
        """Write what should be seen (in float64 where the model runs in it) and the error budget of each tensor.

        The error budget is tolerance.budget's. What a call changes is found out, unless it is known from other inputs.
        """
        restore(self._model, self._buffers, self._buffers)  # timed calls may have moved them on
        before, arguments = unflatten(inputs["structure"], read(fds[0], inputs)), self._arguments(fds[0], inputs)
        stood = generators()
        out, model = self._run(self._model, arguments)
        if self._model.training and stood != generators():  # a rare draw may change no result this time
            del before, arguments, out, model
            return self._expect_in_eval(fds, inputs, effects)
        memory = self._memory()
        with named(*OUTPUT):
            if not flatten(out)[1]:
                raise TypeError("the reference returns no tensor")
        found = effects or self._effects(before, arguments, model)
        constant, fresh = self._keeps_parameters(model), not _is_state(out, model)
        structure, tensors = flatten(visible(out, arguments, model, found["inputs"], found["buffers"]))
        del arguments, model  # what is seen of them is all that is needed from here on
        if (watch := self._repeats(out, fds[0], inputs)) is None:
            if self._repeated or not self._model.training:
                raise ValueError(UNLIKE)
            del before, out, tensors
            return self._expect_in_eval(fds, inputs, effects)
        self._repeated, effects = True, found
        self._constant = self._constant or constant
        outputs, numbers = len(flatten(out)[1]), all_finite(tensors)
        finite = numbers or not all_finite(before)
        del before, out
        watched = Watched(effects, watch)
        told = self._judged(fds[0], inputs, watched, tensors[:outputs], list(map(real, tensors)))
        described = _described(tensors, outputs, effects)
        del tensors
        return {
            "stored": self._given(fds[1], structure, told.expected),
            "tensors": described,
            "units": told.allowed,
            "precision": [found and found[1] for found in told.budgets],
            "product": watch.product,
            "effects": effects,
            "fresh": fresh,
            "finite": finite,
            "numbers": numbers,
            "note": told.note,
            "degenerate": degenerate(told.expected, told.allowed),
            "memory": memory,
            "training": self._model.training,
            "slices": told.cut.slices if told.cut else None,
        }

    @trimmed
    def expect_again(self, fds: list[int], inputs: Spec, effects: Effects, slices: Slices | None) -> Spec:
        """Write what `expect` has written for the same inputs, without the error budgets, which are known."""
        restore(self._model, self._buffers, self._buffers)
        if slices:
            return self._give_in_slices(fds[1], Cut.along(slices), read(fds[0], inputs), inputs)
        return self._given(fds[1], *self._seen_again(fds[0], inputs, effects))

    @trimmed
    def expect_kept(self, fds: list[int], inputs: Spec, slices: Slices) -> Spec:
        """The same for what the kept call was given, which lies where it was timed."""
        restore(self._model, self._buffers, self._buffers)
        with self._stage.kept_laid() as arguments:
            return self._give_in_slices(fds[0], Cut.along(slices), flatten(arguments)[1], inputs)

    @trimmed
    def moved(self, fds: list[int], inputs: Spec, effects: Effects) -> list[float]:
        """How far each tensor that is seen moves at most, in its own values, where operands of float32 products are
        rounded to 11 significant bits: 0 for one of integers. Nothing where the model does not run in full float32."""
        restore(self._model, self._buffers, self._buffers)
        plain = self._full(fds[0], inputs, effects)
        with RoundedOperands():
            moved = self._full(fds[0], inputs, effects)
        pairs = zip(plain, moved, strict=False)
        return [float((b - a).abs_().max()) if a.is_floating_point() and a.numel() else 0.0 for a, b in pairs]

    def _expect_in_eval(self, fds: list[int], inputs: Spec, effects: Effects | None) -> Expected:
        self._model.eval()
        told: Expected = self.expect(fds, inputs, effects)
        return told

    def _judged(
        self, fd: int, inputs: Spec, watched: Watched, outputs: list[torch.Tensor], tensors: list[torch.Tensor]
    ) -> Judged:
        """What is expected of what was seen, which is used up, and the error budgets."""
        self._device.trim()
        full = self._full(fd, inputs, watched.effects) if watched.watch.narrow else []
        self._device.trim()
        taken = inputs["bytes"] + max(self._took["device_bytes"], sum(t.nbytes for t in outputs))
        cut = self._cut(fd, inputs, watched.effects, outputs) if taken > IN_ONE_BYTES else None
        seen = functools.partial(self._seen, fd, inputs, watched.effects)
        if cut:
            seen = functools.partial(self._seen_in_slices, cut, fd, inputs, outputs)
        truths, note = self._in_double(seen)
        del seen
        outputs.clear()
        self._device.trim()
        told = Judged([], [], note, cut)
        while tensors:
            self._settle(told, tensors.pop(0), truths.pop(0), full, watched)
        return told

    def _settle(self, told: Judged, got: torch.Tensor, true: Truth, full: list[torch.Tensor], watched: Watched) -> None:
        """Add one tensor's."""
        watch, right = watched.watch, true.values if true.apart else truth(got, true.values)
        fuller = (full.pop(0) if full else right) if watch.narrow else None
        run = Run(got, right, fuller, watch.length, watch.mixed, watch.narrow, true.apart)
        told.budgets.append(budget(run))
        told.expected.append(run.stored())

    def _keeps_parameters(self, called: torch.nn.Module) -> bool:
        """Whether a call has left large parameters alone, so that further copies may share them."""
        pairs = zip(self._model.parameters(), called.parameters(), strict=True)
        return held_bytes(self._model) > SHARED_BYTES and all(same(one, other) for one, other in pairs)

    def differing(self, fds: list[int], theirs: Spec, but: list[str]) -> list[Difference]:
        """Which parameters and buffers a candidate, whose tensors lie in the memfd, has otherwise; `but`: what calls
        change. See worker.checking.parameters."""
        restore(self._model, self._buffers, self._buffers)
        tree = unflatten(theirs["structure"], read(fds[0], theirs))
        return differences(tensors_of(self._model)["own"], tree["own"], tree["kept"], but)

    @trimmed
    def expect_with(
        self,
        fds: list[int],
        inputs: Spec,
        effects: Effects,
        theirs: Spec,
        found: list[Difference],
        fill: float,
    ) -> Expected:
        """As `expect`, of a model that has the candidate's parameters where they differ; see checking.parameters."""
        own, kept = self._model, self._buffers
        self._model = copy.deepcopy(own)
        try:
            take(self._model, found, unflatten(theirs["structure"], read(fds[2], theirs))["own"], fill)
            self._buffers = {name: b.clone() for name, b in self._model.named_buffers()}
            return self.expect(fds[:2], inputs, effects)
        finally:
            self._model, self._buffers = own, kept

    def stage(self, fds: list[int], inputs: Spec, effects: Effects) -> Staged:
        """Set up the rotating inputs for timing, and say how they rotate; `effects` are those of `expect`."""
        vars(self).pop("_stage", None)  # not two at once
        self._device.release()
        changing = state(self._model, self._buffers, effects)
        self._stage = Stage(self._call, self._device, read(fds[0], inputs), inputs, changing, effects["still"])
        return self._stage.rotation

    def stage_drawn(self, fds: list[int], inputs: Spec, effects: Effects, variant: str, input_seed: int) -> Staged:
        """As `stage`, frugal, of what the function `variant` gives under the seed."""
        vars(self).pop("_stage", None)
        self._device.release()
        given = apart(self._drawn(variant, input_seed)[1])
        changing, still = state(self._model, self._buffers, effects), effects["still"]
        self._stage = Stage(self._call, self._device, given, inputs, changing, still, frugal=True)
        return self._stage.rotation

    @trimmed
    def lend_staged(self, fds: list[int]) -> Spec:
        """Give one candidate a copy of what is staged."""
        return self._stage.lend(fds[0])

    def kept_inputs(self, fds: list[int]) -> Spec:
        """Write what the kept call was given; see Stage.kept_inputs."""
        return self._stage.kept_inputs(fds[0])

    def _repeats(self, out: Any, fd: int, inputs: Spec) -> Watch | None:
        """What was watched in a second call, on fresh memory that holds a pattern; None where it says something else:
        nothing can be compared with it."""
        room = self._took["device_bytes"] if inputs["bytes"] > GIANT else 0  # what the call is going to take
        arguments, watch = self._arguments(fd, inputs), Watch(self._device.torch_device)
        self._device.poison(True, room or inputs["bytes"])
        try:
            with watch.watching():
                again, _ = self._run(self._model, arguments)
        finally:
            self._device.poison(False)
        pairs = zip(flatten(out)[1], flatten(again)[1], strict=True)
        return watch if all(alike(real(one), real(other)) for one, other in pairs) else None

    def _full(self, fd: int, inputs: Spec, effects: Effects) -> list[torch.Tensor]:
        """What should be seen, as full float32 gives it. Nothing where the model does not run so, or sets switches by
        itself: then the truth stands for it, which makes the unit eps x rms."""
        try:
            with full_float32() as full:
                tensors = self._called(self._model, self._arguments(fd, inputs), effects)
        except UNFIT:
            return []
        return list(map(real, tensors)) if full == [True] else []

    def _effects(self, before: Call, after: Call, model: torch.nn.Module) -> Effects:
        """The inputs and buffers that a call changes; `state` names all buffers there are."""
        old, new = dict(self._model.named_buffers()), dict(model.named_buffers())
        buffers = [name for name in old if not same(old[name], new[name])]
        inputs = changed(flatten(before)[1], flatten(after)[1])
        return {"inputs": inputs, "buffers": buffers, "state": list(old), "still": []}


def _described(tensors: list[torch.Tensor], outputs: int, effects: Effects) -> list[Seen]:
    """Name, shape, dtype and bytes of each tensor that is seen."""
    names = [f"output {i}" for i in range(outputs)]
    names += [f"input {i} after the call" for i in effects["inputs"]]
    names += [f"buffer {name}" for name in effects["buffers"]]
    return [
        {"name": name, "shape": place["shape"], "dtype": place["dtype"], "bytes": place["bytes"]}
        for name, place in zip(names, spec_of(None, tensors)["tensors"], strict=True)
    ]


def _is_state(out: Any, model: torch.nn.Module) -> bool:
    """Whether an output is a parameter or buffer itself, which then is the same memory at every call."""
    own = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    return any(t.data_ptr() in own for t in flatten(out)[1])
