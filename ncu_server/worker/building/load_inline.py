"""What `load_inline` means on either side of the wall: the build child compiles and records, the run child only loads.

So does torch's `load`, of which the files' texts count, not their places. A warm `load_inline` still starts ninja and
the compiler; so the run child gets the libraries by path.
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
from ncu_server.worker.building import macros, slim_headers

FLAGS = ("extra_cflags", "extra_cuda_cflags")
NOT_BUILT = (
    "this call of load_inline or load was not made when the candidate was built: call it where the module is imported, "
    "or in the constructor or the first call, with the same arguments each time, which must not depend on the inputs' "
    "values"
)


class NotBuilt(RuntimeError):  # noqa: N818
    """A library is asked for that the build did not make."""


def raised_in_build(fault: BaseException | None) -> bool:
    """Whether an exception, or one that it was raised from, came out of a library's build."""
    while fault is not None:
        trace = fault.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals is globals():
                return True
            trace = trace.tb_next
        fault = fault.__cause__ or fault.__context__
    return False


class Libraries:
    """The libraries of one candidate, keyed by what was asked for."""

    @staticmethod
    @contextlib.contextmanager
    def recording(directory: Path) -> Iterator[list[Library]]:
        """Compile for real below `directory` and record each library: kind, key, name, path."""
        built: list[Library] = []
        real = tvm_ffi.cpp.build_inline, torch.utils.cpp_extension.load_inline, torch.utils.cpp_extension.load

        def made(*args: Any, **kwargs: Any) -> str:
            key = _key("tvm", real[0], args, kwargs)
            given = _with_lines(_asked(real[0], args, kwargs))
            try:
                path = str(real[0](**given))
            except RuntimeError:
                macros.explain(flag for name in FLAGS for flag in given.get(name) or ())
                raise
            built.append({"kind": "tvm", "key": key, "name": Path(path).stem, "path": path})
            return path

        def tvm(*args: Any, **kwargs: Any) -> Any:
            keep = kwargs.pop("keep_module_alive", True)
            return tvm_ffi.load_module(made(*args, **kwargs), keep_module_alive=keep)

        def torch_(*args: Any, **kwargs: Any) -> Any:
            key = _key("torch", real[1], args, kwargs)
            made = slim_headers.load_inline(real[1], directory, **_with_lines(_asked(real[1], args, kwargs)))
            built.append(_torchs(key, made))
            return made

        def of_files(*args: Any, **kwargs: Any) -> Any:
            key = _key("files", real[2], args, kwargs)
            made = real[2](**_asked(real[2], args, kwargs))
            built.append(_torchs(key, made))
            return made

        with _replaced(made, tvm, torch_, of_files):
            yield built

    @staticmethod
    @contextlib.contextmanager
    def loading(built: list[Library], loaded: dict[str, Any]) -> Iterator[None]:
        """Load what was built before and compile nothing; `loaded` fills with the modules, by key, and what is there
        already is not loaded again.

        Inside, a call that the build step did not see raises NotBuilt.
        """
        known = {b["key"]: b for b in built}
        real = tvm_ffi.cpp.build_inline, torch.utils.cpp_extension.load_inline, torch.utils.cpp_extension.load
        loads, by_path = tvm_ffi.load_module, {b["path"]: b["key"] for b in built if b["kind"] == "tvm"}

        def sought(key: str) -> Library:
            if key not in known:
                raise NotBuilt(NOT_BUILT)
            return known[key]

        def find(key: str, load: Callable[[Library], Any]) -> Any:
            library = sought(key)
            if key not in loaded:
                loaded[key] = load(library)
            return loaded[key]

        def made(*args: Any, **kwargs: Any) -> str:
            return sought(_key("tvm", real[0], args, kwargs))["path"]

        def tvm(*args: Any, **kwargs: Any) -> Any:
            keep = kwargs.pop("keep_module_alive", True)
            key = _key("tvm", real[0], args, kwargs)
            return find(key, lambda b: loads(b["path"], keep_module_alive=keep))

        def module(path: Any, *args: Any, **kwargs: Any) -> Any:
            key = by_path.get(str(path))
            return find(key, lambda b: loads(b["path"], *args, **kwargs)) if key else loads(path, *args, **kwargs)

        def torch_(*args: Any, **kwargs: Any) -> Any:
            return find(_key("torch", real[1], args, kwargs), _extension)

        def of_files(*args: Any, **kwargs: Any) -> Any:
            return find(_key("files", real[2], args, kwargs), _extension)

        with _replaced(made, tvm, torch_, of_files), patch.object(tvm_ffi, "load_module", module):
            yield


def _torchs(key: str, made: Any) -> Library:
    """What torch built: an extension, or operators (with is_python_module=False), of which it gives the place."""
    operators = isinstance(made, str)
    path = made if operators else str(made.__file__)
    return {"kind": "operators" if operators else "torch", "key": key, "name": Path(path).stem, "path": path}


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


def _replaced(
    made: Callable[..., str], tvm: Callable[..., Any], torch_: Callable[..., Any], of_files: Callable[..., Any]
) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for holder in (tvm_ffi.cpp, tvm_ffi.cpp.extension):
        stack.enter_context(patch.object(holder, "build_inline", made))
        stack.enter_context(patch.object(holder, "load_inline", tvm))
    stack.enter_context(patch.object(torch.utils.cpp_extension, "load_inline", torch_))
    stack.enter_context(patch.object(torch.utils.cpp_extension, "load", of_files))
    return stack


def _key(kind: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What tells one call from another: all but its name, into which some put the process's number, and of files what
    is in them. Raises OSError where one cannot be read."""
    given = {name: value for name, value in _asked(real, args, kwargs).items() if name != "name"}
    if sources := given.get("sources"):
        given["sources"] = [Path(p).read_bytes() for p in ([sources] if isinstance(sources, str) else sources)]
    return hashlib.sha256(repr((kind, sorted(given.items()))).encode()).hexdigest()
