"""What Triton does on either side of the wall: the build child compiles into a cache, the run child only reads it.

Triton starts programs even where all is compiled (ptxas, ldconfig and file tell it what its cache's keys are made of).
What they said is remembered by functions of Triton; asked in the zygote, it passes on to every child by the fork.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn
from unittest.mock import patch

from ncu_server.targets.triton import CAPABILITY

TUNED = ".autotune.json"


def ask_programs() -> None:
    """In the zygote of the triton target, let Triton start what it would start in every child; elsewhere nothing.

    Neither CUDA nor a thread is started. Raises AssertionError where Triton finds no libcuda.so.1.
    """
    if capability := os.environ.get(CAPABILITY):
        for module, name, arguments in (
            ("runtime.cache", "triton_key", ()),
            ("runtime.build", "platform_key", ()),
            ("backends.nvidia.driver", "library_dirs", ()),
            ("backends.nvidia.compiler", "get_ptxas_version", (int(capability),)),
        ):
            getattr(importlib.import_module(f"triton.{module}"), name)(*arguments)


def cache_in(directory: Path) -> None:
    """Let Triton keep what it compiles below `directory`."""
    os.environ["TRITON_CACHE_DIR"] = str(directory)


@contextlib.contextmanager
def untuned() -> Iterator[None]:
    """Inside, an autotuner runs each of its configurations once, which compiles it, and measures none: the device is
    shared, and the run tunes again."""
    from triton.runtime.autotuner import Autotuner

    def once(call: Callable[[], object], **_: Any) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    with patch.object(Autotuner, "do_bench", property(lambda _: once)):
        yield


class CompilersWords:
    """Inside, only what Triton's compiler raises is raised; other faults show again in the run and are judged there."""

    passed_over = False

    def __enter__(self) -> CompilersWords:
        return self

    def __exit__(self, _: object, fault: BaseException | None, trace: TracebackType | None) -> bool:
        self.passed_over = fault is not None and not _from_compiler(fault, trace)
        return self.passed_over


def _from_compiler(fault: BaseException, trace: TracebackType | None) -> bool:
    from triton.compiler.compiler import compile as of_kernels
    from triton.errors import TritonError
    from triton.runtime.build import compile_module_from_src as of_launchers

    while trace is not None:
        if trace.tb_frame.f_code in (of_kernels.__code__, of_launchers.__code__):
            return True
        trace = trace.tb_next
    return isinstance(fault, TritonError)


def only_read(directory: Path) -> None:
    """From here on Triton finds its kernels below `directory`, and neither compiles nor writes."""
    cache_in(directory)
    knobs = importlib.import_module("triton.knobs")
    knobs.cache.manager_class = Sealed
    knobs.build.impl = _refuse


def _refuse(name: str, *_: object) -> NoReturn:
    raise RuntimeError(
        f"Triton has to compile {name} in a call, though the build called the candidate with inputs like these: "
        "types, constants, strides and divisibility of a kernel's arguments must not depend on the inputs' values"
    )


class Sealed:
    """A cache manager of Triton's form that only reads. What an autotuner measured in the build it does not find."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self._place = Path(os.environ["TRITON_CACHE_DIR"]) / key

    def get_file(self, filename: str) -> str | None:
        path = self._place / filename
        return str(path) if path.exists() and not filename.endswith(TUNED) else None

    def get_group(self, filename: str) -> dict[str, str] | None:
        table = self.get_file(f"__grp__{filename}")
        if table is None:
            return None
        paths: dict[str, str] = json.loads(Path(table).read_text())["child_paths"]
        return paths

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        return "" if filename.endswith(TUNED) else _refuse(Path(filename).stem)

    def put_group(self, filename: str, group: dict[str, str]) -> NoReturn:
        _refuse(Path(filename).stem)
