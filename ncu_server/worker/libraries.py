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

from ncu_server.worker import slim

Built = dict[str, str]


class Libraries:
    """The libraries of one candidate, keyed by what was asked for."""

    @staticmethod
    @contextlib.contextmanager
    def recording(directory: Path) -> Iterator[list[Built]]:
        """Compile for real below `directory` and record each library: kind, key, name, path."""
        built: list[Built] = []
        real = tvm_ffi.cpp.build_inline, torch.utils.cpp_extension.load_inline

        def tvm(*args: Any, **kwargs: Any) -> Any:
            keep = kwargs.pop("keep_module_alive", True)
            key = _key("tvm", args, kwargs)
            path = real[0](**_with_lines(real[0], args, kwargs))
            built.append({"kind": "tvm", "key": key, "name": Path(path).stem, "path": str(path)})
            return tvm_ffi.load_module(path, keep_module_alive=keep)

        def torch_(*args: Any, **kwargs: Any) -> Any:
            key = _key("torch", args, kwargs)
            module = slim.load_inline(real[1], directory, **_with_lines(real[1], args, kwargs))
            built.append({"kind": "torch", "key": key, "name": module.__name__, "path": str(module.__file__)})
            return module

        with _replaced(tvm, torch_):
            yield built

    @staticmethod
    @contextlib.contextmanager
    def loading(built: list[Built], loaded: dict[str, Any]) -> Iterator[None]:
        """Load what was built before and compile nothing; `loaded` fills with the modules, by key, and what is there
        already is not loaded again.

        Inside, a call that the build step did not see raises RuntimeError.
        """
        known = {b["key"]: b for b in built}

        def find(kind: str, args: Any, kwargs: Any, load: Callable[[Built], Any]) -> Any:
            key = _key(kind, args, kwargs)
            if key not in known:
                raise RuntimeError("this load_inline call was not made when the candidate was built")
            if key not in loaded:
                loaded[key] = load(known[key])
            return loaded[key]

        def tvm(*args: Any, **kwargs: Any) -> Any:
            keep = kwargs.pop("keep_module_alive", True)
            return find("tvm", args, kwargs, lambda b: tvm_ffi.load_module(b["path"], keep_module_alive=keep))

        def torch_(*args: Any, **kwargs: Any) -> Any:
            return find("torch", args, kwargs, _extension)

        with _replaced(tvm, torch_):
            yield


def _extension(built: Built) -> Any:
    spec = importlib.util.spec_from_file_location(built["name"], built["path"])
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{built['path']} is not a Python extension")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with_lines(real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; CUDA sources are compiled with line information, which changes no instruction, so that a
    profiler can name the line of what was judged."""
    given = inspect.signature(real).bind(*args, **kwargs).arguments
    if given.get("cuda_sources"):
        given["extra_cuda_cflags"] = [*(given.get("extra_cuda_cflags") or []), "-lineinfo"]
    return given


def _replaced(tvm: Callable[..., Any], torch_: Callable[..., Any]) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for holder in (tvm_ffi.cpp, tvm_ffi.cpp.extension):
        stack.enter_context(patch.object(holder, "load_inline", tvm))
    stack.enter_context(patch.object(torch.utils.cpp_extension, "load_inline", torch_))
    return stack


def _key(kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return hashlib.sha256(repr((kind, args, sorted(kwargs.items()))).encode()).hexdigest()
