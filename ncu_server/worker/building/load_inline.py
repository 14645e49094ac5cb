"""What `load_inline` means on either side of the wall: the build child compiles and records, the run child only loads.

A warm `load_inline` still starts ninja and the compiler; so the run child gets the libraries by path.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch.utils.cpp_extension
import tvm_ffi
import tvm_ffi.cpp
import tvm_ffi.cpp.extension

from ncu_server.worker.answers import Library
from ncu_server.worker.building import slim_headers

NOT_BUILT = (
    "this load_inline call was not made when the candidate was built: call it where the module is imported, with the "
    "same arguments each time"
)


class Libraries:
    """The libraries of one candidate, keyed by what was asked for."""

    @staticmethod
    @contextlib.contextmanager
    def recording(directory: Path) -> Iterator[list[Library]]:
        """Compile for real below `directory` and record each library: kind, key, name, path."""
        built: list[Library] = []
        real = tvm_ffi.cpp.build_inline, torch.utils.cpp_extension.load_inline

        def tvm(*args: Any, **kwargs: Any) -> Any:
            keep = kwargs.pop("keep_module_alive", True)
            key = _key("tvm", real[0], args, kwargs)
            path = real[0](**_with_lines(_asked(real[0], args, kwargs)))
            built.append({"kind": "tvm", "key": key, "name": Path(path).stem, "path": str(path)})
            return tvm_ffi.load_module(path, keep_module_alive=keep)

        def torch_(*args: Any, **kwargs: Any) -> Any:
            key = _key("torch", real[1], args, kwargs)
            made = slim_headers.load_inline(real[1], directory, **_with_lines(_asked(real[1], args, kwargs)))
            operators = isinstance(made, str)  # with is_python_module=False: where the library lies
            kind, path = ("operators", made) if operators else ("torch", str(made.__file__))
            built.append({"kind": kind, "key": key, "name": Path(path).stem, "path": path})
            return made

        with _replaced(tvm, torch_):
            yield built

    @staticmethod
    @contextlib.contextmanager
    def loading(built: list[Library], loaded: dict[str, Any]) -> Iterator[None]:
        """Load what was built before and compile nothing; `loaded` fills with the modules, by key, and what is there
        already is not loaded again.

        Inside, a call that the build step did not see raises RuntimeError.
        """
        known = {b["key"]: b for b in built}
        real = tvm_ffi.cpp.build_inline, torch.utils.cpp_extension.load_inline

        def find(key: str, load: Callable[[Library], Any]) -> Any:
            if key not in known:
                raise RuntimeError(NOT_BUILT)
            if key not in loaded:
                loaded[key] = load(known[key])
            return loaded[key]

        def tvm(*args: Any, **kwargs: Any) -> Any:
            keep = kwargs.pop("keep_module_alive", True)
            key = _key("tvm", real[0], args, kwargs)
            return find(key, lambda b: tvm_ffi.load_module(b["path"], keep_module_alive=keep))

        def torch_(*args: Any, **kwargs: Any) -> Any:
            return find(_key("torch", real[1], args, kwargs), _extension)

        with _replaced(tvm, torch_):
            yield


def _extension(built: Library) -> Any:
    if built["kind"] == "operators":
        torch.ops.load_library(built["path"])
        return built["path"]
    spec = importlib.util.spec_from_file_location(built["name"], built["path"])
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{built['path']} is not a Python extension")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _asked(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, without the place, which is the build's to choose."""
    given = inspect.signature(real).bind(*args, **kwargs).arguments
    return {name: value for name, value in given.items() if name != "build_directory"}


def _with_lines(given: dict[str, Any]) -> dict[str, Any]:
    """CUDA sources are compiled with line information, which changes no instruction, so that a profiler can name the
    line of what was judged."""
    if given.get("cuda_sources"):
        given["extra_cuda_cflags"] = [*(given.get("extra_cuda_cflags") or []), "-lineinfo"]
    return given


def _replaced(tvm: Callable[..., Any], torch_: Callable[..., Any]) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for holder in (tvm_ffi.cpp, tvm_ffi.cpp.extension):
        stack.enter_context(patch.object(holder, "load_inline", tvm))
    stack.enter_context(patch.object(torch.utils.cpp_extension, "load_inline", torch_))
    return stack


def _key(kind: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What tells one call from another: all but its name, into which some put the process's number."""
    given = {name: value for name, value in _asked(real, args, kwargs).items() if name != "name"}
    return hashlib.sha256(repr((kind, sorted(given.items()))).encode()).hexdigest()
