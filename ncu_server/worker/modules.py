"""Loading a source as a module and building its model under a seed."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import sys
import types
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch


def load(source: str, name: str) -> types.ModuleType:
    """Execute `source` as the module `name`; tracebacks and `inspect` (which Triton needs) see its lines."""
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    linecache.cache[module.__file__] = (len(source), None, io.StringIO(source).readlines(), module.__file__)
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
    return module


def seed(value: int) -> None:
    """Seed every generator that a problem may draw from."""
    torch.manual_seed(value)
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value % 2**32)


def build(model_class: Any, arguments: Any, parameter_seed: int, device: str) -> torch.nn.Module:
    """The model on the device, constructed under the seed that reference and candidate share.

    Parameters do not stay at constant defaults (see `observable_parameters`). A model with dropout is put in eval mode;
    any other stays in the mode it is built in.
    """
    seed(parameter_seed)
    args, kwargs = (arguments, {}) if isinstance(arguments, list | tuple) else ([], arguments)
    with observable_parameters():
        model: torch.nn.Module = model_class(*args, **kwargs)
    model.to(device)
    if any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for m in model.modules()):
        model.eval()
    return model


@contextlib.contextmanager
def observable_parameters() -> Iterator[None]:
    """Inside, parameters that would start as one constant (norms' ones, biases' zeros) start as values around it.

    A kernel that ignores them would pass otherwise. The values depend on shape and constant alone, so the order in
    which a constructor makes its parameters does not matter, and no generator is advanced. Only constructors see this:
    weights are never changed behind a built model, which may have packed them.
    """
    register, fill = torch.nn.Module.register_parameter, torch.nn.init.constant_

    def registered(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if param is not None and param.is_floating_point() and param.numel() and not param.is_meta:
            first = param.detach().reshape(-1)[0]
            constant = bool(torch.isfinite(first)) and bool((param.detach() == first).all())
            if constant and (param.numel() > 1 or _written(first)):
                _scatter(param, float(first))
        register(self, name, param)

    def filled(tensor: torch.Tensor, val: float) -> torch.Tensor:
        return _scatter(tensor, val) if isinstance(tensor, torch.nn.Parameter) else fill(tensor, val)

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(torch.nn.Module, "register_parameter", registered))
        stack.enter_context(patch.object(torch.nn.init, "constant_", filled))
        stack.enter_context(patch.object(torch.nn.init, "ones_", lambda tensor: filled(tensor, 1.0)))
        stack.enter_context(patch.object(torch.nn.init, "zeros_", lambda tensor: filled(tensor, 0.0)))
        yield


def _written(number: torch.Tensor) -> bool:
    """Whether a number is of the kind that is written into a source, as no drawn one is: of four digits, or where the
    dtype has no more in quarters. One that was registered before would change again otherwise."""
    value = float(number)
    fine = torch.finfo(number.dtype).eps < 1e-4
    return bool(number == (float(f"{value:.4g}") if fine else round(4 * value) / 4))


def _scatter(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """Values within half of `value` (of 1/8 around zero), drawn from their number and the value alone."""
    generator = torch.Generator().manual_seed(hash((tensor.numel(), value)) % 2**31)
    spread = abs(value) / 2 or 0.125
    noise = torch.empty(tensor.shape, dtype=torch.float64).uniform_(-spread, spread, generator=generator)
    with torch.no_grad():
        return tensor.copy_(value + noise)
