"""Calls of CUDA's driver API, which torch has begun by then."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch


class DriverError(RuntimeError):
    """A call of the driver that failed, with its number of the error."""


@functools.cache
def library() -> ctypes.CDLL:
    """The driver's. Raises OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises OutOfMemoryError where memory is refused, DriverError, OSError where there
    is no driver, AttributeError where it is too old for the function."""
    if fault := getattr(library(), name)(*arguments):
        words = "out of memory" if fault == 2 else f"error {fault}"
        raise (torch.cuda.OutOfMemoryError if fault == 2 else DriverError)(f"{name}: {words}")
