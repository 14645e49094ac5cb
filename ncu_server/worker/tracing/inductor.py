"""What torch.compile made in this process: the kernels that its code launches, in order.

Inductor names a generated kernel after its kind and the operators that it fuses, such as
`triton_per_fused_add_native_layer_norm_0` or `cpp_fused_gelu_1`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ncu_server.worker import private

LAUNCH = re.compile(r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+|\w*_fused_\w+?)(?:\.run)?\(", re.MULTILINE)
MARK = "launch of "
"""What the profiler's ranges around kernels on the host begin with."""


def launches() -> list[str]:
    """Names of generated kernels and of library calls; empty where nothing was compiled, or its code is not kept.

    Inductor's cache is torch's own affair: where another version keeps it otherwise, nothing is told, and no problem
    is to blame.
    """
    try:
        files = dict.fromkeys(module.__file__ for module in _modules())  # twice what is compiled ahead
        return [name for file in files for name in launched(Path(str(file)).read_text())]
    except (ImportError, AttributeError, TypeError, OSError):
        return []


def launched(code: str) -> list[str]:
    """The same of one generated module."""
    return LAUNCH.findall(code.partition("def call(")[2])


@contextmanager
def marked() -> Iterator[None]:
    """Inside, each kernel that Inductor has made for the host runs in a range of torch's profiler: MARK and its name.

    Where another version keeps its code otherwise there are no ranges.
    """
    try:
        kernels = [(module, name) for module in _modules() for name in _kernels(module)]
    except (ImportError, AttributeError, TypeError, OSError):
        kernels = []
    plain = [(module, name, getattr(module, name)) for module, name in kernels]
    for module, name, kernel in plain:
        setattr(module, name, _ranged(name, kernel))
    try:
        yield
    finally:
        for module, name, kernel in plain:
            setattr(module, name, kernel)


def _modules() -> list[ModuleType]:
    cache = private.take("torch._inductor.codecache.PyCodeCache")
    return list(cache.modules)


def _kernels(module: ModuleType) -> Iterator[str]:
    """The names under which a generated module calls kernels of its own."""
    for name in dict.fromkeys(launched(Path(str(module.__file__)).read_text())):
        if "." not in name and callable(getattr(module, name, None)):
            yield name


def _ranged(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.profiler.record_function(MARK + name):
            return kernel(*args, **kwargs)

    return run
