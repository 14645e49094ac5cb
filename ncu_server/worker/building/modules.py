"""Loading a source as a module and building its model under a seed."""

from __future__ import annotations

import contextlib
import io
import linecache
import multiprocessing
import os
import random
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.multiprocessing
from torch.nn.parameter import is_lazy

from ncu_server.worker import private

LOADED: weakref.WeakSet[types.ModuleType] = weakref.WeakSet()
"""The modules of problems and candidates, which are no library's wherever their files seem to lie."""

# What raises where it was set before, as by a source that is loaded anew.
ONCE = (
    (torch, "set_num_interop_threads"),
    (multiprocessing, "set_start_method"),
    (torch.multiprocessing, "set_start_method"),
)

Arguments = tuple[list[Any], dict[str, Any], torch.dtype]
"""What a model is constructed with: by position, by keyword, and under which default dtype."""
DROPOUT = private.take("torch.nn.modules.dropout._DropoutNd")


def spare_inference_mode() -> None:
    """Let `torch.inference_mode` mean `torch.no_grad` in this process and those forked from it: what a model gives in
    inference mode can be neither changed nor restored outside."""

    def inference_mode(mode: Any = True) -> Any:
        if callable(mode):  # as a decorator without brackets
            return torch.no_grad()(mode)
        return torch.no_grad() if mode else torch.enable_grad()

    for owner in (torch, torch.autograd, torch.autograd.grad_mode):
        owner.inference_mode = inference_mode


def load(source: str, name: str, *needed: str) -> types.ModuleType:
    """Execute `source` as the module `name`; tracebacks and `inspect` (which Triton needs) see its lines.

    It runs as a program without arguments whose file lies in the working directory. Where it ends the program, that is
    the end of its text, once it has defined what is `needed`: raises SystemExit before. How many threads torch has and
    which device it makes tensors on by default are not for it to say.
    """
    module, file = types.ModuleType(name), f"{name}.py"
    module.__file__, module.__package__ = str(Path.cwd() / file), ""
    LOADED.add(module)
    if os.environ.get("TMPDIR") == str(Path.cwd()):  # a directory of this process's own
        with contextlib.suppress(OSError):
            Path(module.__file__).write_text(source)
    for key in (file, module.__file__):
        linecache.cache[key] = (len(source), None, io.StringIO(source).readlines(), key)
    sys.modules[name], sys.argv[:] = module, [file]
    threads = torch.get_num_threads()
    try:
        with contextlib.ExitStack() as stack:
            for owner, setting in ONCE:
                stack.enter_context(patch.object(owner, setting, lambda *_, **__: None))
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        if missing := [name for name in needed if not hasattr(module, name)]:
            raise SystemExit(_ending(end, file, missing[0])) from end
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_default_device(None)
    return module


def _ending(end: SystemExit, file: str, missing: str) -> str:
    lines, trace = [], end.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    where = f" in line {lines[0]}" if lines else ""
    return (
        f"its module-level code ends the program{where} with {end.code!r} before it has defined `{missing}`; "
        "it is run without command-line arguments"
    )


def seed(value: int) -> None:
    """Seed every generator that a problem may draw from."""
    torch.manual_seed(value)
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value % 2**32)


@contextlib.contextmanager
def seeded(value: int) -> Iterator[None]:
    """Inside, the generators draw what this seed says, whatever seed the code there asks for."""
    seed(value)
    with contextlib.ExitStack() as stack:
        for owner in (torch, torch.random):
            stack.enter_context(patch.object(owner, "manual_seed", lambda _: torch.default_generator))
        for name in ("manual_seed", "manual_seed_all"):
            stack.enter_context(patch.object(torch.cuda, name, lambda _: None))
        stack.enter_context(patch.object(random, "seed", lambda *_: None))
        if "numpy" in sys.modules:
            stack.enter_context(patch.object(sys.modules["numpy"].random, "seed", lambda *_: None))
        yield


def build(
    model_class: Any, arguments: Arguments, parameter_seed: int, device: str, training: bool | None = None
) -> torch.nn.Module:
    """The model on the device, constructed under the seed that reference and candidate share.

    Parameters do not stay at constant defaults (see `observable_parameters`). `training` is the mode of the model that
    this one stands for. Where it is None, a model with dropout is put in eval mode, and any other stays in the mode it
    is built in. Raises TypeError for what is no module.
    """
    args, kwargs, dtype = arguments
    torch.set_default_dtype(dtype)
    with seeded(parameter_seed), observable_parameters():
        model: torch.nn.Module = model_class(*args, **kwargs)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"`{getattr(model_class, '__name__', model_class)}` makes a {type(model).__name__}, no module")
    model.to(device)
    if training is not None:
        put_in_mode(model, training)
    elif has_dropout(model):
        model.eval()
    return model


def has_dropout(model: torch.nn.Module) -> bool:
    """Whether a module of torch's in it drops something while it trains."""
    return any(isinstance(m, DROPOUT) and m.p > 0 for m in model.modules())


def put_in_mode(model: torch.nn.Module, training: bool) -> None:
    """Let a model train or not; one that is in this mode keeps what its constructor has frozen."""
    if model.training != training:
        model.train(training)


@contextlib.contextmanager
def observable_parameters() -> Iterator[None]:
    """Inside, parameters that would start as one constant (norms' ones, biases' zeros) start as values around it.

    A kernel that ignores them would pass otherwise. The values depend on shape and constant alone, so the order in
    which a constructor makes its parameters does not matter, and no generator is advanced. Only constructors see this:
    weights are never changed behind a built model, which may have packed them.
    """
    register, fill = torch.nn.Module.register_parameter, torch.nn.init.constant_

    def registered(self: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        if (
            param is not None
            and not is_lazy(param)
            and param.is_floating_point()
            and param.numel()
            and not param.is_meta
        ):
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
