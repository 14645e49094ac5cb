"""Loading a source as a module and building its model under a seed."""

from __future__ import annotations

import linecache
import random
import sys
import types
from typing import Any

import torch


def load(source: str, name: str) -> types.ModuleType:
    """Execute `source` as the module `name`; tracebacks and `inspect` (which Triton needs) see its lines."""
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


def seed(value: int) -> None:
    """Seed every generator that a problem may draw from."""
    torch.manual_seed(value)
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value % 2**32)


def build(model_class: Any, arguments: Any, parameter_seed: int, device: str) -> torch.nn.Module:
    """The model on the device, constructed under the seed that reference and candidate share.

    A model with dropout is put in eval mode; any other stays in the mode it is built in.
    """
    seed(parameter_seed)
    args, kwargs = (arguments, {}) if isinstance(arguments, list | tuple) else ([], arguments)
    model: torch.nn.Module = model_class(*args, **kwargs).to(device)
    if any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for m in model.modules()):
        model.eval()
    return model
