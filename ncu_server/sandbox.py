"""The walls around a child: its own session, its own directory, a scrubbed environment, death with its parent.

Landlock, seccomp and the memory cap belong here too; `enter` is the only place that a child passes on its way in.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "CC",
    "CXX",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "OPENBLAS_CORETYPE",
)
PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_")


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child may see: compilers and CUDA need them; keys and tokens are not among them."""
    return {k: v for k, v in environment.items() if k in PASSED_ON or k.startswith(PASSED_ON_PREFIXES)}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def enter(directory: Path, log: Path) -> None:
    """Put the calling (just forked) process behind the walls: `directory` is its world, `log` takes its output."""
    os.setsid()
    die_with_parent()
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    os.environ["TMPDIR"] = str(directory)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
