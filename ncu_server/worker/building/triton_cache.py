"""What Triton does on either side of the wall: the build child compiles into a cache, the run child only reads it.

Triton starts programs even where all is compiled (ptxas, ldconfig and file tell it what its cache's keys are made of).
What they said is remembered by functions of Triton; asked in the fork server, it passes on to every child by the fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from ncu_server.machine import versions
from ncu_server.targets.triton import CAPABILITY
from ncu_server.worker import private

TUNED = ".autotune.json"


def wanted() -> bool:
    """Whether this is a process of the triton target."""
    return CAPABILITY in os.environ


def ask_programs() -> tuple[str, str] | None:
    """In the fork server of the triton target, let Triton start what it would start in every child; elsewhere nothing.

    Neither CUDA nor a thread is started. Returns what stands against it, and what to do, where it cannot.
    """
    if not wanted():
        return None
    try:
        private.take("triton.runtime.cache.triton_key")()
        private.take("triton.runtime.build.platform_key")()
        private.take("triton.backends.nvidia.driver.library_dirs")()
        private.take("triton.backends.nvidia.compiler.get_ptxas_version")(int(os.environ[CAPABILITY]))
        _compile_driver()
    except (AssertionError, RuntimeError, TypeError, OSError, subprocess.SubprocessError) as fault:
        words = " ".join(str(fault).split()) or type(fault).__name__
        fix = "mend what it names (a C compiler, Python's headers, libcuda.so.1, ptxas)"
        return f"Triton {versions.installed('triton')} cannot compile here: {words}", fix
    return None


def _compile_driver() -> None:
    """Compile what Triton needs for every kernel, and load nothing: where that fails, no kernel is to blame."""
    source = Path(private.take("triton.backends.nvidia.driver.dirname")) / "driver.c"
    places = private.take("triton.backends.nvidia.driver.library_dirs")()
    include = private.take("triton.backends.nvidia.driver.include_dirs")
    libraries = private.take("triton.backends.nvidia.driver.libraries")
    build = private.take("triton.runtime.build._build")
    with tempfile.TemporaryDirectory() as scratch:
        build("cuda_utils", str(source), scratch, places, list(include), list(libraries), [])


def cache_in(directory: Path) -> None:
    """Let Triton keep what it compiles below `directory`."""
    os.environ["TRITON_CACHE_DIR"] = str(directory)


@contextlib.contextmanager
def untuned() -> Iterator[None]:
    """Inside, an autotuner runs each of its configurations once, which compiles it, and measures none: the device is
    shared, and the run tunes again."""

    def once(call: Callable[[], object], **_: Any) -> list[float]:
        call()
        return [1.0, 1.0, 1.0]

    with patch.object(private.take("triton.runtime.autotuner.Autotuner"), "do_bench", property(lambda _: once)):
        yield


def raised_by_compiler(fault: BaseException) -> bool:
    """Whether Triton's compiler raised it."""
    trace = fault.__traceback__
    of_kernels = private.take("triton.compiler.compiler.compile").__code__
    of_launchers = vars(private.take("triton.runtime.build"))
    while trace is not None:
        if trace.tb_frame.f_code is of_kernels or trace.tb_frame.f_globals is of_launchers:
            return True
        trace = trace.tb_next
    return isinstance(fault, private.take("triton.errors.TritonError"))


def only_read(directory: Path) -> None:
    """From here on Triton finds its kernels below `directory`, and neither compiles nor writes."""
    cache_in(directory)
    private.take("triton.knobs.cache").manager_class = Sealed
    private.take("triton.knobs.build").impl = _refuse


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
