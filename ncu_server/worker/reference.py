"""The trusted side: draws the secret inputs, computes what is expected, traces the graph, is timed as the baseline."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker import contract
from ncu_server.worker.building.modules import Arguments, build
from ncu_server.worker.calls import Call, called
from ncu_server.worker.checking.effects import changed, restore, same, seen, state
from ncu_server.worker.checking.float64 import SINGLE_TO_DOUBLE, Recast
from ncu_server.worker.checking.holes import shows
from ncu_server.worker.checking.parameters import differences, held, take
from ncu_server.worker.checking.tolerance import alike, degenerate, finite, stored, truth, units
from ncu_server.worker.checking.varied import chosen
from ncu_server.worker.dense import Unjudgeable, named, require_dense
from ncu_server.worker.problem import MISREAD, LoadedProblem
from ncu_server.worker.tensors import (
    arrived,
    flatten,
    mapped,
    placed,
    put,
    read,
    real,
    spec_of,
    unflatten,
    wide,
    write,
)
from ncu_server.worker.timing.devices import DEVICES, Device
from ncu_server.worker.timing.input_sets import far, holed, sharper, stretched
from ncu_server.worker.timing.mutation import MIX, Draw
from ncu_server.worker.timing.stage import Stage
from ncu_server.worker.tracing import graph, inductor
from ncu_server.worker.verbs import (
    CallContract,
    Chosen,
    Difference,
    Effects,
    Expected,
    Inputs,
    Opened,
    Seen,
    Sharpened,
    Staged,
    Traced,
    Work,
)

TRIED, TRIED_S = (2, 100), 0.1  # changes of a problem's inputs that its model is tried with: so many, for so long
# What a model raises that cannot do with another precision than its own.
UNFIT = (RuntimeError, TypeError, ValueError, LookupError, AssertionError, ArithmeticError)


class Reference:
    """One problem on one device; verbs come in the order open, draw, expect or stage, block."""

    _problem: LoadedProblem
    _device: Device
    _model: torch.nn.Module
    _made: Arguments
    _buffers: dict[str, torch.Tensor]
    _call: Any
    _stage: Stage

    def open_reference(self, fds: list[int], source: str, device: str, parameter_seed: int, mode: str | None) -> Opened:
        """Load the problem and build its model; the constructor's arguments are written to the memfd. `mode` is
        torch.compile's; None leaves the model as it is.

        Raises what Problem raises, TypeError where arguments are not data.
        """
        self._problem, self._device = LoadedProblem(source), DEVICES[device]()
        make = build if mode else _copyable  # a compiled one is never copied
        self._model, arguments = self._problem.built(parameter_seed, device, make)
        try:
            with named("get_init_inputs", "argument", "make it in the constructor"):
                spec = write(fds[0], arguments)
        except Unjudgeable:
            raise
        except TypeError as fault:
            raise TypeError(f"get_init_inputs gives what is no data ({fault}): make it in the constructor") from None
        self._made = arguments
        self._buffers = {name: b.clone() for name, b in self._model.named_buffers()}
        self._call = torch.compile(self._model, mode=mode, dynamic=False) if mode else self._model
        held_bytes = sum(t.nbytes for t in (*self._model.parameters(), *self._model.buffers()))
        variants, note = self._problem.variants, self._problem.note
        return {"arguments": spec, "variants": variants, "note": note, "held_bytes": held_bytes}

    def draw(self, fds: list[int], variant: str, input_seed: int) -> Spec:
        """Make the inputs that the function `variant` gives under the secret seed and write them to the memfd.

        Where they may stand for several calls, the first of them in which the model comes to its end.
        """
        calls = self._problem.drawn(variant, input_seed, self._model.forward)
        with named(variant, "input", "give dense ones, and make it of them in forward"):
            for call in calls[:-1]:
                spec = write(fds[0], call)
                try:
                    self._run(self._model, self._arguments(fds[0], spec))
                except MISREAD:
                    continue
                return spec
            return write(fds[0], calls[-1])

    def sharpen(self, fds: list[int], inputs: Spec, input_seed: int, still: list[int]) -> Sharpened:
        """Write a sharper set made of the first memfd's to the second, but for what is `still`; see worker.inputs.

        Where a constant would pass for the reference's output on it, a set on which none would is looked for far from
        what was drawn. `how` says which of them it is, as case.How.
        """
        drawn = unflatten(inputs["structure"], read(fds[0], inputs))
        generator = torch.Generator().manual_seed(input_seed)
        given, made = flatten(drawn)[1], flatten(sharper(drawn, generator))[1]
        kept = [old if place in still else new for place, (old, new) in enumerate(zip(given, made, strict=True))]
        first = unflatten(inputs["structure"], kept)
        if not self._tells(fds[1], first) and self._tells(fds[1], far := stretched(drawn)):
            return {"inputs": write(fds[1], far), "how": "32 times as large"}
        return {"inputs": write(fds[1], first), "how": "sharper"}

    def hole(self, fds: list[int], inputs: Spec, input_seed: int, still: list[int]) -> Spec | None:
        """Write the first memfd's set with NaN in some rows of its floats to the second; None where the reference does
        not say what comes of NaN. See worker.holes."""
        given, generator = read(fds[0], inputs), torch.Generator().manual_seed(input_seed)
        made = holed(given, generator)
        kept = [old if place in still else new for place, (old, new) in enumerate(zip(given, made, strict=True))]
        spec = write(fds[1], unflatten(inputs["structure"], kept))
        with contextlib.suppress(*UNFIT):
            if shows(lambda fd: self._run(self._model, self._arguments(fd, inputs))[0], fds[0], fds[1]):
                return spec
        return None

    def choose(self, fds: list[int], inputs: Spec, structures: list[Any]) -> Chosen:
        """Which of these trees of the same tensors, with another plain value, the reference takes; one that changes its
        output before others. `taken` is None, and `why` says why, where it takes none; see worker.varied."""

        def run(structure: Any) -> Any:
            return self._run(self._model, self._arguments(fds[0], {**inputs, "structure": structure}))[0]

        return chosen(run, inputs["structure"], structures)

    def stretch(self, fds: list[int], inputs: Spec, still: list[int]) -> Spec | None:
        """Write a set made of the first memfd's to the second, of which floats lie far beyond; see inputs.far."""
        made = far(read(fds[0], inputs), still)
        return write(fds[1], unflatten(inputs["structure"], made)) if made else None

    def vary(self, fds: list[int], inputs: Spec, still: list[int], nonce: int) -> Spec:
        """Write a set made of the first memfd's to the second, one of those that are alike; see draws.Draw.fill."""
        given = read(fds[0], inputs)
        draw = Draw(given, inputs, "cpu", still, kept=False)
        held = [placed(t, layout, "cpu") for t, layout in zip(given, inputs["tensors"], strict=True)]
        draw.fill(held, nonce, alike=True)
        return write(fds[1], unflatten(inputs["structure"], held))

    def _tells(self, fd: int, made: list[Any]) -> bool:
        """Whether no constant would pass for what the reference gives; false where these inputs are none for it."""
        arguments = self._arguments(fd, write(fd, made))
        try:
            tensors = [real(t) for t in flatten(self._run(self._model, arguments)[0])[1]]
        except UNFIT:
            return False
        allowed = [units(t, wide(t) if t.element_size() == 1 else t) for t in tensors]
        return (finite(tensors) or not _finite(made)) and degenerate(tensors, allowed) is None

    def count_work(self, fds: list[int], inputs: Spec) -> Work:
        """Shapes, parameters and counted work; see ncu_server.worker.tracing.graph."""
        return graph.work(self._model, self._arguments(fds[0], inputs))

    def contract(self, fds: list[int], inputs: Spec, kept: list[int]) -> CallContract:
        """What one call takes and gives; see ncu_server.worker.contract."""
        made, call = self._made, self._arguments(fds[0], inputs)
        return contract.contract(copy.deepcopy(self._model), made, call, kept)

    def trace(self, fds: list[int], inputs: Spec) -> Traced:
        """The traced graph; raises whatever torch.export raises for a model that cannot be traced."""
        return graph.graph(self._model, self._arguments(fds[0], inputs))

    def kernels(self, fds: list[int]) -> list[str]:
        """What torch.compile launches for this model, in order."""
        return inductor.launches()

    def features(self, fds: list[int]) -> list[str]:
        """What the device is, in words."""
        return self._device.features()

    def peaks(self, fds: list[int]) -> dict[str, float | None]:
        """What the device reaches: copy bandwidth in GB/s, matrix rates in TFLOP/s."""
        return self._device.peaks()

    def expect(self, fds: list[int], inputs: Spec, effects: Effects | None = None) -> Expected:
        """Write what should be seen (in float64 where the model runs in it) and the error budget of each tensor.

        The error budget is budget.units'. What a call changes is found out, unless it is known from other inputs.
        """
        restore(self._model, self._buffers, self._buffers)  # timed calls may have moved them on
        before, arguments = self._arguments(fds[0], inputs), self._arguments(fds[0], inputs)
        out, model = self._run(self._model, arguments)
        with named("Model.forward", "output", "return dense ones (such as its values and indices)"):
            if not flatten(out)[1]:
                raise TypeError("the reference returns no tensor")
        self._repeats(out, fds[0], inputs)
        effects = effects or self._effects(before, arguments, model)
        structure, tensors = flatten(seen(out, arguments, model, effects["inputs"], effects["buffers"]))
        exact, note = self._exact(fds[0], inputs, effects)
        expected, allowed = [], []
        for got in map(real, tensors):
            right = truth(got, exact.pop(0))
            allowed.append(units(got, right))
            expected.append(stored(right))
        return {
            "stored": put(fds[1], structure, expected),
            "tensors": _described(tensors, len(flatten(out)[1]), effects),
            "units": allowed,
            "effects": effects,
            "fresh": not _is_state(out, model),
            "finite": _finite(tensors) or not _finite(before),
            "numbers": _finite(tensors),
            "note": note,
            "degenerate": degenerate(expected, allowed),
        }

    def differing(self, fds: list[int], theirs: Spec, but: list[str]) -> list[Difference]:
        """Which parameters and buffers a candidate, whose tensors lie in the memfd, has otherwise; `but`: what calls
        change. See worker.parameters."""
        restore(self._model, self._buffers, self._buffers)
        tree = unflatten(theirs["structure"], read(fds[0], theirs))
        return differences(held(self._model)["own"], tree["own"], tree["kept"], but)

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

    def block(self, fds: list[int], nonce: int, count: int, group: int = 1, inputs: Inputs = "cold") -> list[float]:
        """Time `count` groups of calls in microseconds; see Stage.block."""
        return self._stage.block(nonce, count, group, inputs)

    def take_unseen(self, fds: list[int], inputs: list[Spec]) -> None:
        """Take input sets that no call has seen; see Stage.take_unseen."""
        self._stage.take_unseen([read(fd, spec) for fd, spec in zip(fds, inputs, strict=True)], inputs[0])

    def snapshot(self, fds: list[int], window: float | None = None, last: bool = True) -> Spec:
        """Write what the kept call gave; see Stage.snapshot."""
        return self._stage.snapshot(fds[0], window, last)

    def given(self, fds: list[int]) -> Spec:
        """Write what the kept call was given; see Stage.given."""
        return self._stage.given(fds[0])

    def _arguments(self, fd: int, inputs: Spec) -> Call:
        call: Call = arrived(fd, inputs, self._device.torch_device)
        return call

    def _run(self, model: torch.nn.Module, arguments: Call) -> tuple[Any, torch.nn.Module]:
        """The output, and the copy of the model that gave it."""
        own = copy.deepcopy(model)
        with torch.no_grad():
            out = called(own, arguments)
        self._device.settle()
        return out, own

    def _repeats(self, out: Any, fd: int, inputs: Spec) -> None:
        """Raises ValueError for a model whose second call, on fresh memory that holds a pattern, says something else:
        nothing can be compared with it."""
        arguments = self._arguments(fd, inputs)
        self._device.poison(True, inputs["bytes"])
        try:
            again, _ = self._run(self._model, arguments)
        finally:
            self._device.poison(False)
        for one, other in zip(flatten(out)[1], flatten(again)[1], strict=True):
            if not alike(real(one), real(other)):
                raise ValueError(
                    "two calls on the same inputs differ; make the model deterministic (no random numbers, and none "
                    "that lie in memory which is never written)"
                )

    def _effects(self, before: Call, after: Call, model: torch.nn.Module) -> Effects:
        """The inputs and buffers that a call changes; `state` names all buffers there are."""
        old, new = dict(self._model.named_buffers()), dict(model.named_buffers())
        buffers = [name for name in old if not same(old[name], new[name])]
        inputs = changed(flatten(before)[1], flatten(after)[1])
        return {"inputs": inputs, "buffers": buffers, "state": list(old), "still": []}

    def still(self, fds: list[int], inputs: Spec) -> list[int]:
        """The inputs of which no value may change, since the reference fails where some have: raises (a matrix that has
        to be positive definite, say) or gives no numbers where it gave such."""
        moved = range(len(inputs["tensors"]))
        if not self._fails(fds[0], inputs, moved):
            return []
        return [i for i in moved if self._fails(fds[0], inputs, [i])] or list(moved)

    def _fails(self, fd: int, inputs: Spec, moved: Sequence[int]) -> bool:
        arguments, given = self._arguments(fd, inputs), read(fd, inputs)
        still = [i for i in range(len(given)) if i not in moved]
        draw, began = Draw(given, inputs, self._device.torch_device, still, kept=True), time.monotonic()
        numbers = _finite(self._run(self._model, self._arguments(fd, inputs))[0])
        for n in range(TRIED[1]):
            if n >= TRIED[0] and time.monotonic() - began > TRIED_S:
                break
            draw.fill(flatten(arguments)[1], n * MIX)
            try:
                out, _ = self._run(self._model, arguments)
            except UNFIT:
                return True
            if numbers and not _finite(out):
                return True
        return False

    def _exact(self, fd: int, inputs: Spec, effects: Effects) -> tuple[list[torch.Tensor], str | None]:
        """What should be seen, in float64 throughout, or as far as the model runs in it; a note where it does not."""
        note = None
        for answers in (SINGLE_TO_DOUBLE, {}):
            try:
                return self._seen(fd, inputs, effects, wide, answers), None
            except UNFIT as fault:
                note = f"compared with the reference's own precision: it does not run in float64 ({fault})"
        return self._seen(fd, inputs, effects, lambda tensor: tensor, {}), note

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
            out, own = self._run(model, arguments)
        tensors = flatten(seen(out, arguments, own, effects["inputs"], effects["buffers"]))[1]
        return [real(wide(t)) for t in tensors]


def _copyable(model_class: Any, arguments: Arguments, parameter_seed: int, device: str) -> torch.nn.Module:
    """As modules.build, but made without gradients where the model cannot be copied with them: what its constructor has
    computed of parameters is then a plain tensor. Raises Unjudgeable where one holds what is no dense tensor."""

    @functools.wraps(model_class, updated=())
    def made(*args: Any, **kwargs: Any) -> torch.nn.Module:
        model: torch.nn.Module = model_class(*args, **kwargs)
        if isinstance(model, torch.nn.Module):
            require_dense((*model.named_parameters(), *model.named_buffers()))
        return model

    model = build(made, arguments, parameter_seed, device)
    try:
        copy.deepcopy(model)
    except RuntimeError:
        with torch.no_grad():
            model = build(made, arguments, parameter_seed, device)
    return model


def _described(tensors: list[torch.Tensor], outputs: int, effects: Effects) -> list[Seen]:
    """Name, shape, dtype and bytes of each tensor that is seen."""
    names = [f"output {i}" for i in range(outputs)]
    names += [f"input {i} after the call" for i in effects["inputs"]]
    names += [f"buffer {name}" for name in effects["buffers"]]
    return [
        {"name": name, "shape": place["shape"], "dtype": place["dtype"], "bytes": place["bytes"]}
        for name, place in zip(names, spec_of(None, tensors)["tensors"], strict=True)
    ]


def _finite(tree: Any) -> bool:
    return finite([real(t) for t in flatten(tree)[1]])


def _is_state(out: Any, model: torch.nn.Module) -> bool:
    """Whether an output is a parameter or buffer itself, which then is the same memory at every call."""
    own = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    return any(t.data_ptr() in own for t in flatten(out)[1])
