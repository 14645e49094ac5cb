"""The problem's own model on a device: built once, called on copies, described, its graph and work counted."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker import contract
from ncu_server.worker.answers import CallContract, Chip, LaunchTime, Memory, Opened, Room, Traced, Work
from ncu_server.worker.building.modules import Arguments, build, has_dropout, put_in_mode
from ncu_server.worker.calls import Call, called
from ncu_server.worker.checking.effects import restore
from ncu_server.worker.chip import chip
from ncu_server.worker.dense import Unjudgeable, named, require_dense
from ncu_server.worker.memory import MemoryWatch, together
from ncu_server.worker.problem import LoadedProblem
from ncu_server.worker.tensors import arrived, write
from ncu_server.worker.timing.devices import DEVICES, Device
from ncu_server.worker.timing.side import trimmed
from ncu_server.worker.timing.stage import Stage
from ncu_server.worker.tracing import ahead, graph, inductor
from ncu_server.worker.tracing.launch_times import launch_times

EVAL_MODE = "both sides run in eval mode: the reference has dropout"


class ProblemModel:
    """One problem on one device."""

    _problem: LoadedProblem
    _device: Device
    _model: torch.nn.Module
    _made: Arguments
    _buffers: dict[str, torch.Tensor]
    _call: Any
    _mode: str | None
    _stage: Stage
    _took: Memory  # by the latest call
    _constant = False  # whether calls are known to leave parameters alone

    def open_reference(
        self,
        fds: list[int],
        source: str,
        device: str,
        parameter_seed: int,
        mode: str | None,
        training: bool | None = None,
    ) -> Opened:
        """Load the problem and build its model; the constructor's arguments are written to the memfd. `mode` is
        torch.compile's; None leaves the model as it is. `training` is the mode of the other references.

        Raises what Problem raises, TypeError where arguments are not data.
        """
        self._problem, self._device = LoadedProblem(source), DEVICES[device]()
        make = build if mode else _copyable  # a compiled one is never copied
        self._model, arguments = self._problem.built(parameter_seed, device, make)
        if training is not None:
            put_in_mode(self._model, training)
        try:
            with named("get_init_inputs", "argument", "make it in the constructor"):
                spec = write(fds[0], arguments)
        except Unjudgeable:
            raise
        except TypeError as fault:
            raise TypeError(f"get_init_inputs gives what is no data ({fault}): make it in the constructor") from None
        self._made = arguments
        self._buffers = {name: b.clone() for name, b in self._model.named_buffers()}
        self._call, self._mode = torch.compile(self._model, mode=mode, dynamic=False) if mode else self._model, mode
        held = held_bytes(self._model)
        dropped = EVAL_MODE if has_dropout(self._model) and not self._model.training else None
        variants, notes = self._problem.variants, [*filter(None, (self._problem.note, dropped))]
        return {
            "arguments": spec,
            "variants": variants,
            "note": "; ".join(notes) or None,
            "held_bytes": held,
            "training": self._model.training,
        }

    @trimmed
    def count_work(self, fds: list[int], inputs: Spec) -> Work:
        """Shapes, parameters and counted work; see ncu_server.worker.tracing.graph."""
        return graph.work(self._model, self._arguments(fds[0], inputs))

    @trimmed
    def contract(self, fds: list[int], inputs: Spec, kept: list[int]) -> CallContract:
        """What one call takes and gives; see ncu_server.worker.contract."""
        made, call = self._made, self._arguments(fds[0], inputs)
        return contract.contract(copy.deepcopy(self._model), made, call, kept)

    @trimmed
    def trace(self, fds: list[int], inputs: Spec) -> Traced:
        """The traced graph; raises whatever torch.export raises for a model that cannot be traced."""
        return graph.graph(self._model, self._arguments(fds[0], inputs))

    def compile_ahead(self, fds: list[int]) -> bool:
        """Compile for the staged inputs without the device, as far as that goes; see tracing.ahead."""
        return self._mode is not None and ahead.compile_ahead(self._model, self._mode, self._stage.example)

    def kernels(self, fds: list[int]) -> list[str]:
        """What torch.compile launches for this model, in order."""
        return inductor.launches()

    def launch_times(self, fds: list[int]) -> list[LaunchTime]:
        """What a call on the staged inputs launches, in order, with its times; see tracing.launch_times."""
        call = functools.partial(called, self._call, self._stage.example)
        return launch_times(call, self._device, functools.partial(restore, self._model, self._buffers, self._buffers))

    def features(self, fds: list[int]) -> list[str]:
        """What the device is, in words."""
        return self._device.features()

    @trimmed
    def measure_chip(self, fds: list[int]) -> Chip:
        """What plans for a GPU hang on; see worker.chip."""
        return chip(self._device)

    def free(self, fds: list[int]) -> Room:
        """Bytes of the device's memory; what torch holds here counts as free."""
        self._device.release()
        free, total = self._device.memory()
        return {"free": free, "total": total}

    @trimmed
    def peaks(self, fds: list[int]) -> dict[str, float | None]:
        """What the device reaches: copy bandwidth in GB/s, matrix rates in TFLOP/s."""
        return self._device.peaks()

    def _memory(self) -> Memory:
        """What the latest call took, with the model."""
        held, on_host = held_bytes(self._model), self._device.is_host
        model = Memory(host_bytes=held if on_host else 0, device_bytes=0 if on_host else held)
        return together(model, self._took)

    def _arguments(self, fd: int, inputs: Spec) -> Call:
        call: Call = arrived(fd, inputs, self._device.torch_device)
        return call

    def _run(self, model: torch.nn.Module, arguments: Call) -> tuple[Any, torch.nn.Module]:
        """The output, and the copy of the model that gave it."""
        own = self._copy(model)
        with MemoryWatch(self._device.is_host) as watch, torch.no_grad():
            out = called(own, arguments)
            self._device.settle()
        self._took = watch.peak
        return out, own

    def _copy(self, model: torch.nn.Module) -> torch.nn.Module:
        """A copy, of which parameters are the model's own where calls are known to leave them alone."""
        return copy.deepcopy(model, {id(p): p for p in model.parameters()} if self._constant else {})

    def _changed_copy(self, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.nn.Module:
        """A copy of the model with all tensors changed; no parameter is copied before it is."""
        own = [p for p in self._model.parameters() if type(p) is torch.nn.Parameter]
        made = {id(p): _parameter(change(p.detach()), p) for p in own}
        return copy.deepcopy(self._model, made)._apply(change)


def _parameter(value: torch.Tensor, of: torch.nn.Parameter) -> torch.nn.Parameter:
    fresh = value.clone() if value.data_ptr() == of.data_ptr() else value
    return torch.nn.Parameter(fresh, of.requires_grad)


def held_bytes(model: torch.nn.Module) -> int:
    """Bytes of its parameters and buffers."""
    return sum(t.nbytes for t in (*model.parameters(), *model.buffers()))


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
