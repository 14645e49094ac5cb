"""What a candidate opens through ctypes: shared libraries, and functions in them by name.

The interpreter's audit events tell it, whatever name ctypes goes by in the source; Python code cannot take a hook off
again. Libraries that C++ opens are not seen here (see authorship.vendors).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ncu_server.worker.answers import Ctypes

# By their bare names, which the loader finds before anything of the candidate's: none of them computes for it.
RUNTIME = re.compile(r"lib(c|m|dl|rt|pthread|gomp|iomp5|cuda|cudart|nvrtc|nvidia-ml)\.so[.\d]*")


class Opened:
    """Listens from `listen` to the process's end."""

    def __init__(self) -> None:
        self._libraries: set[str | None] = set()
        self._names: set[str] = set()

    def listen(self) -> None:
        sys.addaudithook(self._heard)

    def found(self, built: Iterable[str]) -> Ctypes:
        """`opened` are the libraries that are not among those `built` (paths), `named` the functions asked for."""
        ours = {os.path.realpath(path) for path in built}
        others = {one for one in self._libraries if one is None or _is_other(one, ours)}
        return {
            "opened": sorted("the process itself" if one is None else Path(one).name for one in others),
            "named": sorted(self._names),
        }

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not event.startswith("ctypes.dl"):
            return
        if event == "ctypes.dlopen":
            self._libraries.add(None if args[0] is None else os.fsdecode(args[0]))
        elif isinstance(args[-1], str):
            self._names.add(args[-1])


def _is_other(library: str, ours: set[str]) -> bool:
    return not RUNTIME.fullmatch(library) and os.path.realpath(library) not in ours
