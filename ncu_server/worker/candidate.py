"""The candidate's side: it gets data and inputs, gives raw bytes, and holds nothing of the reference."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import Spec, TensorLayout
from ncu_server.worker.answers import CallProfile, Checked, Effects, Library, Profiled, Staged
from ncu_server.worker.authorship.ctypes_audit import Opened
from ncu_server.worker.authorship.instrument import Watch
from ncu_server.worker.authorship.profile import dependence, find_concealed, join, profile_calls
from ncu_server.worker.authorship.tamper import Intact, IntrospectionGuard
from ncu_server.worker.building import triton_cache
from ncu_server.worker.building.load_inline import Libraries
from ncu_server.worker.building.modules import build, load
from ncu_server.worker.calls import Call, called
from ncu_server.worker.checking.effects import changed, restore, state, visible
from ncu_server.worker.checking.parameters import tensors_of
from ncu_server.worker.memory import NONE, MemoryWatch, higher, together
from ncu_server.worker.tensors import (
    UnacceptableOutput,
    arrived,
    flatten,
    placed,
    read,
    read_and_close,
    unflatten,
    write,
)
from ncu_server.worker.timing.devices import DEVICES, GIANT, Device
from ncu_server.worker.timing.side import TimedSide, trimmed
from ncu_server.worker.timing.stage import Stage

AGAIN, HELD_S, HELD_BYTES = 4, 0.1, 256 << 20  # calls whose outputs are held at once, and when that is enough


class Candidate(TimedSide):
    """One candidate on one device; verbs come in the order of the methods here."""

    _device: Device
    _built: list[str]
    _make: Callable[[], tuple[ModuleType, torch.nn.Module]]
    _module: ModuleType
    _model: torch.nn.Module
    _watch: Watch
    _seen: CallProfile
    _concealed: dict[str, float]
    _full: list[torch.Tensor]

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        self._libraries = ExitStack()  # never left: what is called later finds no compiler either
        self._opened, self._intact = Opened(), Intact()
        self._held: list[torch.Tensor] = []
        self._last: list[torch.Tensor] = []
        self._layout: list[TensorLayout] = []
        self._buffers: dict[str, torch.Tensor] = {}
        self._constructed = self._holds = NONE  # memory at the constructor's height, and after it

    def open_candidate(
        self,
        fds: list[int],
        source: str,
        device: str,
        parameter_seed: int,
        arguments: Spec,
        libraries: list[Library],
        kernels: str | None,
        training: bool | None,
    ) -> None:
        """Load the candidate with its compiled libraries and build `ModelNew` from the same arguments and seed, in the
        reference's mode.

        `kernels` is the directory of what Triton compiled, where the build called the candidate.
        """
        self._device = DEVICES[device]()
        if kernels:
            triton_cache.only_read(Path(kernels))
        tensors = read(fds[0], arguments)

        def make() -> tuple[ModuleType, torch.nn.Module]:
            module = load(source, "candidate", "ModelNew")
            given = unflatten(arguments["structure"], tensors)  # of the candidate's own classes
            return module, build(module.ModelNew, given, parameter_seed, device, training)

        self._libraries.enter_context(Libraries.loading(libraries, self._loaded))

        self._make, self._built = make, [library["path"] for library in libraries]
        self._opened.listen()
        IntrospectionGuard().install()
        with MemoryWatch(self._device.is_host) as watch:
            self._module, self._model = make()
        self._constructed, self._holds = watch.peak, watch.held
        self._buffers = {name: b.clone() for name, b in self._model.named_buffers()}

    def practise(self, fds: list[int], inputs: list[Spec]) -> None:
        """Call on inputs that decide nothing, so that autotuners have chosen before anything is checked or timed."""
        calls = [arrived(fd, spec, self._device.torch_device) for fd, spec in zip(fds, inputs, strict=True)]
        with MemoryWatch(self._device.is_host) as watch, torch.no_grad():
            for call in calls:
                called(self._model, call)
            self._device.settle()
        self._holds = together(self._holds, watch.held)
        self._device.release()  # else the next outputs might lie where these lay, out of the poison's way

    @trimmed
    def check(self, fds: list[int], inputs: Spec, effects: Effects, room: int) -> Checked:
        """Run once on poisoned memory from the first state, write what is seen, say whether the call keeps to itself.

        `effects` are the reference's: what it changes, and all buffers that it has. `kept`: inputs that the reference
        leaves alone are as they were. `fresh`: no output lies where one of an earlier call, which is still held, lies.
        """
        before = read_and_close(fds, 0, inputs)
        moved = self._laid(before, inputs)
        arguments = unflatten(inputs["structure"], moved)
        ready = self._readier(moved, effects)
        ready()
        giant = inputs["bytes"] + room > GIANT  # of which nothing stays, and no more than an output's room is to be had
        self._device.poison(True, room if giant else inputs["bytes"])
        try:
            with MemoryWatch(self._device.is_host) as watch, torch.no_grad():
                out = called(self._model, arguments)
                self._intact.check()
                self._device.settle()
        finally:
            self._device.poison(False)
        if lacking := set(effects["buffers"]) - {name for name, _ in self._model.named_buffers()}:
            raise UnacceptableOutput(f"the model has no buffer {min(lacking)}, which the reference changes")
        told = visible(out, arguments, self._model, effects["inputs"], effects["buffers"])
        spec = write(fds[1], told, strict=True)
        kept = set(changed(before, flatten(arguments)[1])) <= set(effects["inputs"])
        memory = higher(self._constructed, together(self._holds, watch.peak))
        fresh = giant or self._fresh(out, arguments, ready)
        if giant:
            self._last, self._layout = [], []
        return {"seen": spec, "kept": kept, "fresh": fresh, "memory": memory}

    @trimmed
    def fresh(self, fds: list[int], inputs: Spec, effects: Effects) -> bool:
        """What `check` says of that, for gigabytes, of which nothing is held until the next check."""
        arguments = self._arrived(fds, inputs)
        ready = self._readier(flatten(arguments)[1], effects)
        outputs = []
        for _ in range(2):
            ready()
            with torch.no_grad():
                outputs.append(called(self._model, arguments))
        self._device.settle()
        given = {t.untyped_storage().data_ptr() for t in flatten(arguments)[1]}
        one, two = (
            {
                t.data_ptr()
                for t in flatten(out, strict=True)[1]
                if t.numel() and t.untyped_storage().data_ptr() not in given
            }
            for out in outputs
        )
        return not one & two

    def parameters(self, fds: list[int]) -> Spec:
        """Write what the model holds; see worker.checking.parameters.tensors_of."""
        return write(fds[0], tensors_of(self._model))

    def _laid(self, given: list[torch.Tensor], inputs: Spec) -> list[torch.Tensor]:
        """The inputs on the device, in the memory of those before where they are of the same layout: an address does
        not tell what lies there."""
        layout = inputs["tensors"]
        if layout == self._layout and all(t.is_contiguous() for t in self._last):
            for tensor, value in zip(self._last, given, strict=True):
                tensor.copy_(value)
        else:
            device = self._device.torch_device
            self._last = [placed(t, p, device) for t, p in zip(given, layout, strict=True)]
        self._layout = layout
        return self._last

    def _readier(self, given: list[torch.Tensor], effects: Effects) -> Callable[[], None]:
        """What puts everything back that a call of the reference changes: these inputs, and the buffers to how they
        were made. All other buffers are the candidate's own scratch."""
        first = {place: given[place].clone() for place in effects["inputs"]}

        def ready() -> None:
            restore(self._model, self._buffers, effects["state"])
            for place, values in first.items():
                given[place].copy_(values)

        return ready

    def _fresh(self, out: Any, arguments: Any, ready: Callable[[], None]) -> bool:
        """Whether `out`, and a few more outputs where they are small and soon there, lie in memory of their own.

        What lies in the inputs' memory is left to the comparison of the inputs.
        """
        began, given = time.monotonic(), {t.untyped_storage().data_ptr() for t in flatten(arguments)[1]}
        for _ in range(AGAIN):
            tensors = [t for t in flatten(out)[1] if t.numel() and t.untyped_storage().data_ptr() not in given]
            if {t.data_ptr() for t in tensors} & {t.data_ptr() for t in self._held}:
                return False
            self._held += tensors
            if sum(t.numel() * t.element_size() for t in self._held) > HELD_BYTES or time.monotonic() - began > HELD_S:
                break
            ready()
            with torch.no_grad():
                out = called(self._model, arguments)
        self._device.settle()
        return True

    def stage(self, fds: list[int], inputs: Spec, effects: Effects) -> Staged:
        """Set up the rotating inputs for timing; `effects` are the reference's."""
        return self._staged(fds, inputs, effects, frugal=False)

    def stage_lent(self, fds: list[int], inputs: Spec, effects: Effects) -> Staged:
        """As `stage`, frugal, of inputs that are this process's alone."""
        return self._staged(fds, inputs, effects, frugal=True)

    def _staged(self, fds: list[int], inputs: Spec, effects: Effects, frugal: bool) -> Staged:
        self._let_go()
        changing = state(self._model, self._buffers, effects)
        base, still = read_and_close(fds, 0, inputs), effects["still"]
        self._stage = Stage(self._model, self._device, base, inputs, changing, still, self._intact.check, frugal)
        return self._stage.rotation

    def _let_go(self) -> None:
        """Of inputs and outputs of earlier checks and of timing."""
        self._held, self._last, self._layout = [], [], []
        vars(self).pop("_stage", None)
        self._device.release()

    @trimmed
    def profile(self, fds: list[int], inputs: Spec, effects: Effects) -> Profiled:
        """Whose code spends the time of a call, and what it has opened by ctypes; see authorship.profile and
        ctypes_audit.Opened. Comes after all timing: it wraps and slows.

        Profiled once before its functions are wrapped as well, since a candidate can tell that they are.
        """
        launches = not self._device.is_host
        self._let_go()
        call, ready = self._profilable(fds, inputs, effects)
        unaware = profile_calls(call, self._device.settle, Watch(), launches, ready)
        self._watch = Watch()
        self._watch.over(self._loaded.values(), self._module, self._model)
        seen = profile_calls(call, self._device.settle, self._watch, launches, ready)
        unordered = max(seen["unordered_us"], unaware["unordered_us"] * seen["calls"] / unaware["calls"])
        self._concealed = find_concealed(unaware, seen)
        self._seen = {**join(unaware, seen), "unordered_us": unordered}
        return {**self._seen, "concealed": self._concealed, **self._opened.found(self._built)}

    @trimmed
    def profile_anew(self, fds: list[int], inputs: Spec, effects: Effects) -> Profiled:
        """The same of a model made anew, which takes its functions from libraries where they are wrapped already: those
        in a tuple or a partial of the first one cannot be reached; joined to that one's."""
        self._forget()
        self._module, self._model = self._make()
        self._watch.over(self._loaded.values(), self._module, self._model)
        call, ready = self._profilable(fds, inputs, effects)
        seen = profile_calls(call, self._device.settle, self._watch, not self._device.is_host, ready)
        # What the first one had for functions of its own: the time outside torch, without that for Python.
        spent = max(0.0, self._seen["outside_us"] - seen["outside_us"]) * seen["calls"]
        both: CallProfile = {**join(self._seen, seen), "own_us": min(seen["own_us"], spent)}
        hidden = self._concealed | find_concealed(self._seen, seen)
        return {**both, "concealed": hidden, **self._opened.found(self._built)}

    @trimmed
    def remake(self, fds: list[int], inputs: Spec) -> bool:
        """Call a model made anew, and keep what it gives; the model that was judged is gone from here on. Says whether
        it calls functions of its own."""
        self._forget()
        self._watch.rewind()
        self._watch.started = 0
        _, self._full = flatten(self._remade(fds[0], inputs)())
        return self._watch.started > 0

    def _forget(self) -> None:
        """One model at a time."""
        for name in ("_module", "_model", "_stage"):
            vars(self).pop(name, None)

    @trimmed
    def silence(self, fds: list[int], inputs: Spec, moves: bool) -> float:
        """Share of the output that the candidate's own kernels decide; see authorship.profile.dependence. Comes after
        `remake`. `moves`: all that others do is to move data, so that what they leave as it was counts for nothing.

        What they are kept from is made anew too: a model that has run may replay what it has recorded of them.
        """
        given = flatten(arrived(fds[0], inputs, self._device.torch_device))[1] if moves else None
        return dependence(self._full, lambda: self._remade(fds[0], inputs), self._spoil, self._watch, given)

    def _remade(self, fd: int, inputs: Spec) -> Callable[[], Any]:
        gc.collect()  # one model at a time, also where one holds itself
        module, model = self._make()
        self._watch.over(self._loaded.values(), module, model)
        return self._caller(model, arrived(fd, inputs, self._device.torch_device))

    def _profilable(
        self, fds: list[int], inputs: Spec, effects: Effects
    ) -> tuple[Callable[[], Any], Callable[[], None] | None]:
        """A call, and what has to come before each where the reference changes something."""
        arguments = self._arrived(fds, inputs)
        changes = effects["inputs"] or effects["buffers"]
        ready = self._readier(flatten(arguments)[1], effects) if changes else None
        return self._caller(self._model, arguments), ready

    def _arrived(self, fds: list[int], inputs: Spec) -> Any:
        """A copy of the inputs, whose descriptor is closed before any call."""
        pairs = zip(read_and_close(fds, 0, inputs), inputs["tensors"], strict=True)
        return unflatten(inputs["structure"], [placed(t, p, self._device.torch_device) for t, p in pairs])

    def _caller(self, model: torch.nn.Module, arguments: Call) -> Callable[[], Any]:
        def call() -> Any:
            with torch.no_grad():
                return called(model, arguments)

        return call

    def _spoil(self, outputs: list[torch.Tensor]) -> None:
        for tensor in outputs:
            self._device.poison(True, tensor.numel() * tensor.element_size())
