"""torch.compile on the host alone: as far as it comes without measuring or running anything.

What it makes by then lies in Inductor's and Triton's caches on disk, where the real first call finds it. The backend is
Inductor's own with the options of the mode, so that the caches' keys are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import torch

from ncu_server.worker import private
from ncu_server.worker.calls import Call, called


class DeviceWanted(BaseException):
    """Compiling would go on with a measurement, or is done and would go on with the call. No handler of exceptions
    within the compiler takes it for a fault."""


def compile_ahead(model: torch.nn.Module, mode: str, call: Call) -> bool:
    """Compile `model` for the call, up to the first thing that wants the device; whether all came to its end.

    False too where the compiler fails, or a version of torch lacks what this leans on: the real first call tells.
    """
    try:
        inductor = private.take("torch._dynamo.lookup_backend")("inductor")
        options = private.take("torch._inductor.list_mode_options")(mode, False)
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return False
    done = False

    def backend(graph: Any, example_inputs: Any) -> Any:
        nonlocal done
        inductor(graph, example_inputs, config_patches=options)
        done = True
        return _want

    try:
        with suppress(DeviceWanted, Exception), _nothing_measured(), torch.no_grad():
            # What lies between two graphs would run: a model of several is left to its first call.
            called(torch.compile(model, backend=backend, dynamic=False, fullgraph=True), call)
    finally:
        torch.compiler.reset()
    return done


def _want(*_: object, **__: object) -> NoReturn:
    raise DeviceWanted


@contextmanager
def _nothing_measured() -> Iterator[None]:
    """Whatever would be benchmarked raises DeviceWanted instead."""
    try:
        benchmarker = private.take("torch._inductor.runtime.benchmarking.benchmarker")
    except (ImportError, AttributeError):
        raise DeviceWanted from None
    names = [name for name in dir(benchmarker) if name.startswith("benchmark")]
    for name in names:
        setattr(benchmarker, name, _want)
    try:
        yield
    finally:
        for name in names:
            delattr(benchmarker, name)
