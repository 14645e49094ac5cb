"""The trusted side: computes what is expected of secret inputs, and is timed as the baseline."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import (
    Difference,
    Effects,
    Expected,
    Seen,
    Staged,
)
from ncu_server.worker.calls import Call
from ncu_server.worker.checking.effects import changed, restore, same, state, visible
from ncu_server.worker.checking.float64 import SINGLE_TO_DOUBLE, Recast
from ncu_server.worker.checking.full_float32 import Watch, full_float32
from ncu_server.worker.checking.parameters import differences, take, tensors_of
from ncu_server.worker.checking.slices import Cut, agree, cuts
from ncu_server.worker.checking.tolerance import Run, alike, budget, degenerate, stored, truth
from ncu_server.worker.dense import named
from ncu_server.worker.generators import generators
from ncu_server.worker.input_maker import UNFIT, InputMaker, all_finite
from ncu_server.worker.problem_model import trimmed
from ncu_server.worker.tensors import (
    copied,
    flatten,
    give,
    mapped,
    read,
    real,
    spec_of,
    unflatten,
    wide,
)
from ncu_server.worker.timing.side import TimedSide
from ncu_server.worker.timing.stage import Stage

IN_ONE_BYTES = 1 << 30
"""Inputs and outputs up to this size are computed in float64 in one call."""
UNLIKE = (
    "two calls on the same inputs differ; make the model deterministic (no random numbers, and none that lie in memory "
    "which is never written)"
)


class Reference(InputMaker, TimedSide):
    """One problem on one device; verbs come in the order open_reference, draw, expect or stage, block."""

    _write = staticmethod(give)
    _repeated = False  # whether two calls have agreed in the model's mode

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
            self._model.eval()
            return self.expect(fds, inputs, effects)
        memory = self._memory()
        with named("Model.forward", "output", "return dense ones (such as its values and indices)"):
            if not flatten(out)[1]:
                raise TypeError("the reference returns no tensor")
        if (watch := self._repeats(out, fds[0], inputs)) is None:
            if self._repeated or not self._model.training:
                raise ValueError(UNLIKE)
            self._model.eval()
            return self.expect(fds, inputs, effects)
        self._repeated = True
        effects = effects or self._effects(before, arguments, model)
        structure, tensors = flatten(visible(out, arguments, model, effects["inputs"], effects["buffers"]))
        full = self._full(fds[0], inputs, effects) if watch.narrow else []
        exact, note = self._exact(fds[0], inputs, effects, flatten(out)[1])
        expected, budgets = [], []
        for got in map(real, tensors):
            right = truth(got, exact.pop(0))
            fuller = (full.pop(0) if full else right) if watch.narrow else None
            budgets.append(budget(Run(got, right, fuller, watch.length, watch.mixed, watch.narrow)))
            expected.append(stored(right))
        allowed = [found and found[0] for found in budgets]
        return {
            "stored": give(fds[1], structure, expected),
            "tensors": _described(tensors, len(flatten(out)[1]), effects),
            "units": allowed,
            "precision": [found and found[1] for found in budgets],
            "effects": effects,
            "fresh": not _is_state(out, model),
            "finite": all_finite(tensors) or not all_finite(before),
            "numbers": all_finite(tensors),
            "note": note,
            "degenerate": degenerate(expected, allowed),
            "memory": memory,
            "training": self._model.training,
        }

    def differing(self, fds: list[int], theirs: Spec, but: list[str]) -> list[Difference]:
        """Which parameters and buffers a candidate, whose tensors lie in the memfd, has otherwise; `but`: what calls
        change. See worker.parameters."""
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
        """As `expect`, of a model that has the candidate's parameters where they differ; see worker.parameters.take."""
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

    def kept_inputs(self, fds: list[int]) -> Spec:
        """Write what the kept call was given; see Stage.kept_inputs."""
        return self._stage.kept_inputs(fds[0])

    def _repeats(self, out: Any, fd: int, inputs: Spec) -> Watch | None:
        """What was watched in a second call, on fresh memory that holds a pattern; None where it says something else:
        nothing can be compared with it."""
        arguments, watch = self._arguments(fd, inputs), Watch(self._device.torch_device)
        self._device.poison(True, inputs["bytes"])
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

    def _exact(
        self, fd: int, inputs: Spec, effects: Effects, outputs: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], str | None]:
        """What should be seen, in float64 throughout, or as far as the model runs in it; a note where it does not. What
        is gigabytes is computed in slices, where the model treats the indices of a dimension by themselves."""
        seen = functools.partial(self._seen, fd, inputs, effects)
        if cut := self._cut(fd, inputs, effects, outputs):
            seen = functools.partial(self._seen_in_slices, cut, fd, inputs, outputs)
        note = None
        for answers in (SINGLE_TO_DOUBLE, {}):
            try:
                return seen(wide, answers), None
            except UNFIT as fault:
                note = f"compared with the reference's own precision: it does not run in float64 ({fault})"
        return seen(lambda tensor: tensor, {}), note

    def _cut(self, fd: int, inputs: Spec, effects: Effects, outputs: list[torch.Tensor]) -> Cut | None:
        """A dimension along which a call for one index gives what the whole call gave there."""
        if effects["inputs"] or effects["buffers"] or inputs["bytes"] + sum(t.nbytes for t in outputs) <= IN_ONE_BYTES:
            return None
        tensors = read(fd, inputs)

        def holds(cut: Cut) -> bool:
            for start in cut.starts():
                some = copied(unflatten(inputs["structure"], cut.of(tensors, start, 1)), self._device.torch_device)
                try:
                    parts = flatten(self._run(self._model, some)[0])[1]
                except UNFIT:
                    return False
                wholes = [t.narrow(cut.dimension, start, 1) for t in outputs]
                if len(parts) != len(wholes) or not all(map(agree, parts, wholes)):
                    return False
            return True

        return next(filter(holds, cuts(tensors, outputs)), None)

    def _seen_in_slices(
        self,
        cut: Cut,
        fd: int,
        inputs: Spec,
        outputs: list[torch.Tensor],
        change: Callable[[torch.Tensor], torch.Tensor],
        answers: Mapping[Any, Any],
    ) -> list[torch.Tensor]:
        """As `_seen`, of a call that changes nothing."""
        model, tensors = copy.deepcopy(self._model)._apply(change), read(fd, inputs)
        held = [*tensors, *self._model.parameters(), *self._model.buffers()]
        length = cut.length(tensors, outputs)
        exact = [torch.empty(t.shape, dtype=change(t[:0]).dtype, device=t.device) for t in outputs]
        with Recast(answers, held) if answers else contextlib.nullcontext():
            for start in range(0, cut.size, length):
                some = cut.of(tensors, start, min(length, cut.size - start))
                given = [change(t.to(self._device.torch_device)) for t in some]
                out, _ = self._run(model, unflatten(inputs["structure"], given))
                for whole, part in zip(exact, flatten(out)[1], strict=True):
                    whole.narrow(cut.dimension, start, part.shape[cut.dimension]).copy_(part)
        return [real(wide(t)) for t in exact]

    def _seen(
        self,
        fd: int,
        inputs: Spec,
        effects: Effects,
        change: Callable[[torch.Tensor], torch.Tensor],
        answers: Mapping[Any, Any],
    ) -> list[torch.Tensor]:
        """What is seen of a call with all tensors changed and with the `answers` of precision.Recast, in float64."""
        model, given = copy.deepcopy(self._model)._apply(change), self._arguments(fd, inputs)
        arguments = mapped(given, change)
        held = [*flatten(given)[1], *self._model.parameters(), *self._model.buffers()]
        with Recast(answers, held) if answers else contextlib.nullcontext():
            tensors = self._called(model, arguments, effects)
        return [real(wide(t)) for t in tensors]

    def _called(self, model: torch.nn.Module, arguments: Call, effects: Effects) -> list[torch.Tensor]:
        """What is seen of a call."""
        out, own = self._run(model, arguments)
        return flatten(visible(out, arguments, own, effects["inputs"], effects["buffers"]))[1]


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
