"""Names of GPU architectures: as people give them, as nvcc builds them, as torch lists them."""

from __future__ import annotations

import re

from ncu_server.errors import Code, Refusal

ARCH = re.compile(r"sm_\d{2,3}")
SUFFIXED = ("90", "100", "101", "103", "110", "120", "121")
"""Architectures whose own instructions (wgmma, tcgen05) want the suffix `a`: nvcc's list of GPU architectures. Until
CUDA 13.0 sm_110 was called sm_101."""


def full(arch: str) -> str:
    """`sm_90` as it is built, `sm_90a`. Raises Refusal BAD_ARGUMENT where it is no architecture."""
    if not ARCH.fullmatch(arch):
        raise Refusal(Code.BAD_ARGUMENT, f"the arch {arch[:40]!r} is none", "give one such as sm_80 or sm_90")
    return f"{arch}a" if arch.removeprefix("sm_") in SUFFIXED else arch


def dotted(arch: str) -> str:
    """`sm_90` as TORCH_CUDA_ARCH_LIST and tvm_ffi have it, `9.0a`. Raises Refusal as `full` does."""
    digits = full(arch).removeprefix("sm_")
    number = digits.rstrip("a")
    return f"{number[:-1]}.{number[-1]}{digits[len(number) :]}"
