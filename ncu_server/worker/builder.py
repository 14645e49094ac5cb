"""The build child: imports the candidate where compilers are allowed and records each library it makes.

Where a constructor or a first call compiles, it makes these as well, on inputs that decide nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any
from unittest.mock import patch

import torch

from ncu_server.rules.triton_cache import KEPT_IN
from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Built, Library, Warmed
from ncu_server.worker.building import triton_cache
from ncu_server.worker.building.load_inline import Libraries, raised_in_build
from ncu_server.worker.building.modules import build, load
from ncu_server.worker.calls import called
from ncu_server.worker.tensors import arrived, read, unflatten
from ncu_server.worker.timing.devices import DEVICES

NICER = 10
"""How far a build stands back: what judges another candidate beside it holds the device."""


@contextlib.contextmanager
def _heard(said: list[str]) -> Iterator[None]:
    """Collects what programs print that are waited for, ninja first of all; neither load_inline tells it."""
    real = subprocess.run

    def run(*args: Any, **kwargs: Any) -> Any:
        done = real(*args, **kwargs)
        if isinstance(done.stdout, bytes):
            said.append(done.stdout.decode(errors="replace"))
        return done

    with patch.object(subprocess, "run", run):
        yield


class Builder:
    """One candidate's build in a directory of its own; verbs come in the order build or examine, words, warm."""

    _module: ModuleType
    _built: list[Library]

    def __init__(self) -> None:
        self._said: list[str] = []
        self._recording = contextlib.ExitStack()  # never left: what an import has bound records in later calls too

    def build(self, fds: list[int], source: str, directory: str) -> Built:
        """Import the candidate and say which libraries it made. What the compiler printed travels in the exception, and
        is kept for words."""
        with _heard(self._said):
            return self._build(source, directory)

    def _build(self, source: str, directory: str) -> Built:
        os.nice(NICER)
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        os.environ["TVM_FFI_CACHE_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] = str(place)
        triton_cache.cache_in(place / KEPT_IN)
        self._built = self._recording.enter_context(Libraries.recording(place))
        self._module = load(source, "candidate", "ModelNew")
        return {"libraries": list(self._built), "classes": [n for n in ("ModelNew",) if hasattr(self._module, n)]}

    def examine(self, fds: list[int], source: str, directory: str, variables: dict[str, str]) -> Built:
        """As build, with `variables` for the compilers."""
        os.environ.update(variables)
        return self.build(fds, source, directory)

    def words(self, fds: list[int]) -> list[str]:
        """What the compilers said in build or examine, also where it raised."""
        return self._said

    def warm(
        self,
        fds: list[int],
        device: str,
        parameter_seed: int,
        arguments: Spec,
        inputs: list[Spec],
        training: bool | None,
    ) -> Warmed:
        """Call `ModelNew` on inputs that decide nothing; the first memfd holds its constructor's arguments.

        Says whether the calls came to their end, and which libraries they made. Raises what compilers raise and nothing
        else.
        """
        untuned = triton_cache.untuned() if triton_cache.wanted() else contextlib.nullcontext()
        before = len(self._built)
        with untuned, _CompilersWords() as compiler, torch.no_grad():
            given = unflatten(arguments["structure"], read(fds[0], arguments))
            model = build(self._module.ModelNew, given, parameter_seed, device, training)
            for fd, spec in zip(fds[1:], inputs, strict=True):
                called(model, arrived(fd, spec, device))
            DEVICES[device]().settle()
        return {"ended": not compiler.passed_over, "libraries": self._built[before:]}


class _CompilersWords:
    """Inside, only what compilers raise is raised; other faults show again in the run and are judged there."""

    passed_over = False

    def __enter__(self) -> _CompilersWords:
        return self

    def __exit__(self, _: object, fault: BaseException | None, trace: TracebackType | None) -> bool:
        if fault is not None and not raised_in_build(fault):
            self.passed_over = not (triton_cache.wanted() and triton_cache.raised_by_compiler(fault))
        return self.passed_over
