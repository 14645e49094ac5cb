"""Memory that a child has freed stays with it, so that what the machine asks for fresh pages is nobody's time.

glibc gives large blocks back at once, and each large tensor of a call then costs a page fault a page. On a virtual
machine whose host takes free pages back, the same call was seen to take 9 ms or 300 ms. PyTorch's tuning guide advises
allocators that keep memory (jemalloc, tcmalloc) for the CPU; here torch's own interface takes one (`allocator.cpp`).

mallopt alone does not do it. `torch.empty(1 << 25).fill_(1.0)`, 128 MiB, fifteen times in a fresh process on one thread
(torch 2.13.0, glibc 2.36, two busy virtual cores of an AMD EPYC, 2026-11-29), three processes for each:

    malloc as it is                          150 to 280 ms each
    M_MMAP_THRESHOLD at its most, 32 MiB     150 to 280 ms each: larger blocks are mapped anew
    M_MMAP_MAX 0, M_TRIM_THRESHOLD -1        130 to 240 ms for the first 3 to 8, then 10 to 26 ms
    this allocator                           130 to 180 ms for the first, then 12 to 29 ms
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
from pathlib import Path

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_PERTURB = -1, -3, -6  # mallopt(3)
MOST_MMAP_THRESHOLD = 32 << 20  # that glibc takes
SOURCE = Path(__file__).with_suffix(".cpp")
BUILD_TIMEOUT_S = 120.0

_libc = ctypes.CDLL(None)
_libraries: list[ctypes.CDLL] = []


def settle_malloc() -> None:
    """Let malloc keep what it can. Its own thresholds follow what a process has freed, so that equal sides differ."""
    _libc.mallopt(M_MMAP_THRESHOLD, MOST_MMAP_THRESHOLD)
    _libc.mallopt(M_TRIM_THRESHOLD, -1)


def install(cache: Path) -> str | None:
    """Let torch keep large tensors' memory, here and in processes forked from here; built once in `cache`.

    Returns None, or in words why they are left to malloc. To be called before any tensor is made.
    """
    try:
        library = ctypes.CDLL(str(_built(cache)))
    except (OSError, subprocess.SubprocessError) as fault:
        return f"page faults of large tensors are part of the times: torch's CPU allocator could not be built: {fault}"
    library.keeping_install()
    _libraries.append(library)
    return None


def fill(on: bool) -> None:
    """Whether memory holds a pattern when it is handed out, so that unwritten outputs show."""
    _libc.mallopt(M_PERTURB, 1 if on else 0)  # fills with the complement of the byte
    for library in _libraries:
        library.keeping_fill(on)


def release() -> None:
    """Give back to the system what is free."""
    _libc.malloc_trim(0)
    for library in _libraries:
        library.keeping_release()


def _built(cache: Path) -> Path:
    compiler = os.environ.get("CXX", "c++")
    parts = (SOURCE.read_text(), torch.__version__, torch.__file__, compiler)
    library = cache / f"keeping-{hashlib.sha256('-'.join(parts).encode()).hexdigest()[:20]}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        home, part = Path(torch.__file__).parent, library.with_suffix(f".{os.getpid()}")
        flags = ["-O2", "-std=c++20", "-shared", "-fPIC", f"-I{home}/include", f"-L{home}/lib", "-lc10"]
        subprocess.run(
            [*shlex.split(compiler), str(SOURCE), "-o", str(part), *flags],
            check=True,
            capture_output=True,
            timeout=BUILD_TIMEOUT_S,
        )
        part.replace(library)
    return library
