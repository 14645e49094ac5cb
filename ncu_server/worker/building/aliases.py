"""Plain names, for compilers, of folders whose paths torch and tvm_ffi would hand them unquoted."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi.cpp.extension

from ncu_server import places

FOUND_BY_TVM = ("find_include_path", "find_dlpack_include_path", "find_libtvm_ffi")


def rename() -> None:
    """Let compilers that are started here, and in processes forked from here, get plain names where there are some.

    The interpreter and sys.path have theirs from the start; the base installation's headers and what tvm_ffi finds with
    links followed get theirs now.
    """
    folder = os.environ.get(places.ALIASES)
    names = places.aliases(folder) if folder else {}
    if not names:
        return
    variables = sysconfig.get_config_vars()
    variables |= {name: places.renamed(v, names) for name, v in variables.items() if isinstance(v, str)}
    for name in FOUND_BY_TVM:
        setattr(tvm_ffi.cpp.extension, name, _renaming(getattr(tvm_ffi.cpp.extension, name), names))


def _renaming(find: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., str]:
    return lambda *args, **kwargs: places.renamed(str(find(*args, **kwargs)), names)
