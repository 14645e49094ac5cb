"""The trusted side: draws the secret inputs, computes what is expected, traces the graph, is timed as the baseline."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ncu_server.worker import trace
from ncu_server.worker.devices import DEVICES, Device
from ncu_server.worker.modules import build, load, seed
from ncu_server.worker.stage import Stage
from ncu_server.worker.tensors import Spec, flatten, mapped, placed, read, unflatten, write

NEEDED = ("Model", "get_inputs", "get_init_inputs")


class Reference:
    """One problem on one device; verbs come in the order open, draw, expect or stage, block."""

    _module: Any
    _device: Device
    _model: torch.nn.Module
    _call: Any
    _stage: Stage

    def open(self, fds: list[int], source: str, device: str, parameter_seed: int, compiled: bool) -> dict[str, Any]:
        """Load the problem and build its model; the constructor's arguments are written to the memfd.

        Raises AttributeError where the source lacks a name, TypeError where arguments are not data.
        """
        self._module = load(source, "problem")
        for name in NEEDED:
            if not hasattr(self._module, name):
                raise AttributeError(f"the problem defines no `{name}`")
        seed(parameter_seed)
        arguments = self._module.get_init_inputs()
        spec = write(fds[0], arguments)
        self._device = DEVICES[device]()
        self._model = build(self._module.Model, arguments, parameter_seed, device)
        self._call = torch.compile(self._model) if compiled else self._model
        return {"arguments": spec, "training": self._model.training}

    def draw(self, fds: list[int], input_seed: int) -> Spec:
        """Make the inputs under the secret seed and write them to the memfd."""
        seed(input_seed)
        inputs = self._module.get_inputs()
        if not isinstance(inputs, list | tuple):
            raise TypeError(f"get_inputs() returns a {type(inputs).__name__}; it should return a list")
        return write(fds[0], list(inputs))

    def work(self, fds: list[int], inputs: Spec) -> dict[str, Any]:
        """Shapes, parameters and counted work; see ncu_server.worker.trace."""
        return trace.work(self._model, self._arguments(fds[0], inputs))

    def graph(self, fds: list[int], inputs: Spec) -> dict[str, Any]:
        """The traced graph; raises whatever torch.export raises for a model that cannot be traced."""
        return trace.graph(self._model, self._arguments(fds[0], inputs))

    def copy_rate(self, fds: list[int]) -> float:
        """The device's copy bandwidth in GB/s, bytes read plus bytes written."""
        return self._device.copy_gbps()

    def expect(self, fds: list[int], inputs: Spec) -> dict[str, Any]:
        """Write the expected outputs (float64 where the model runs in it) and give the error budget of each.

        The unit of error is max(largest error of the reference itself, eps(dtype) x rms of the output).
        """
        plain = self._run(self._model, self._arguments(fds[0], inputs))
        structure, outputs = flatten(plain)
        if not outputs:
            raise TypeError("the reference returns no tensor")
        exact, note = self._exact(fds[0], inputs)
        expected, units = [], []
        for got, want in zip(outputs, exact, strict=True):
            truth = torch.where(torch.isfinite(got), want, got.double()) if got.is_floating_point() else got
            expected.append(truth)
            units.append(_unit(got, truth) if got.is_floating_point() else None)
        stored = write(fds[1], unflatten(structure, expected))
        _, tensors = flatten(plain)
        zeros_pass = all(
            u is not None and float(t.double().abs().max()) <= 64 * u if t.numel() else True
            for t, u in zip(tensors, units, strict=True)
        )
        shapes = [{"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")} for t in outputs]
        return {"stored": stored, "outputs": shapes, "units": units, "note": note, "zeros_pass": zeros_pass}

    def stage(self, fds: list[int], inputs: Spec) -> None:
        """Set up the rotating inputs for timing."""
        self._stage = Stage(self._call, self._device, read(fds[0], inputs), inputs)

    def block(self, fds: list[int], nonce: int, count: int) -> list[float]:
        """Time `count` calls in microseconds; see Stage.block."""
        return self._stage.block(nonce, count)

    def snapshot(self, fds: list[int]) -> Spec:
        """Write the output of the last timed call."""
        return self._stage.snapshot(fds[0], strict=False)

    def _arguments(self, fd: int, inputs: Spec) -> list[Any]:
        host = read(fd, inputs)
        device = self._device.torch_device
        moved = [placed(t, p, device) for t, p in zip(host, inputs["tensors"], strict=True)]
        arguments: list[Any] = unflatten(inputs["structure"], moved)
        return arguments

    def _run(self, model: torch.nn.Module, arguments: list[Any]) -> Any:
        with torch.no_grad():
            out = copy.deepcopy(model)(*arguments)
        self._device.settle()
        return out

    def _exact(self, fd: int, inputs: Spec) -> tuple[list[torch.Tensor], str | None]:
        arguments = mapped(self._arguments(fd, inputs), lambda t: t.double() if t.is_floating_point() else t)
        try:
            out = self._run(copy.deepcopy(self._model).double(), arguments)
        except (RuntimeError, TypeError, NotImplementedError) as fault:
            out = self._run(self._model, self._arguments(fd, inputs))
            return _double(out), f"compared with the reference's own precision: it does not run in float64 ({fault})"
        return _double(out), None


def _double(tree: Any) -> list[torch.Tensor]:
    return [t.double() if t.is_floating_point() else t for t in flatten(tree)[1]]


def _unit(got: torch.Tensor, truth: torch.Tensor) -> float:
    finite = torch.isfinite(truth) & torch.isfinite(got)
    if not bool(finite.any()):
        return float(torch.finfo(got.dtype).eps)
    own = float((got.double() - truth)[finite].abs().max())
    rms = float(truth[finite].square().mean().sqrt())
    limits = torch.finfo(got.dtype)
    return max(own, float(limits.eps) * rms, float(limits.tiny))
