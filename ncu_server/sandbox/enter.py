"""A child's way in: its own session, its own directory, a scrubbed environment, death with its parent, its walls."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ncu_server.places import ROOT
from ncu_server.sandbox.policy import Policy, WallStatus, raise_walls

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ENDED_FIRST = 500  # of the 1000 that proc(5) knows
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
    "NCU_SERVER_MEMORY_GIB",
)
PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_")
# Caches of compilers and of torch: shared ones would hand data from one candidate to the next, or to the reference.
CACHES = {
    "CCACHE_DIR": "ccache",
    "CUDA_CACHE_PATH": "cuda",
    "NUMBA_CACHE_DIR": "numba",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TVM_FFI_CACHE_DIR": "tvm_ffi",
    "XDG_CACHE_HOME": "cache",
}


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child may see: compilers and CUDA need them; keys and tokens are not among them."""
    return {k: v for k, v in environment.items() if k in PASSED_ON or k.startswith(PASSED_ON_PREFIXES)}


def search_path() -> list[str]:
    """Where processes of ours find modules: as here, without the folder that the server was started in, which is on its
    path too; children may read what is on theirs."""
    apart = (ROOT, Path.cwd())
    return [str(ROOT), *(p for p in sys.path if p and Path(p).resolve() not in apart)]


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def outlive_parent() -> None:
    """Take that back: for a process that notices the end of its parent by itself and has to clear up first."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of whatever a child leaves behind, so that it can be found and killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_first() -> None:
    """Be the first that the kernel ends where the machine's memory runs out, and whatever this starts with it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(ENDED_FIRST))


def enter(directory: Path, log: Path, policy: Policy) -> list[WallStatus]:
    """Put the calling (just forked) process behind its walls: `directory` is its world, `log` takes its output."""
    os.setsid()
    die_with_parent()
    directory.mkdir(parents=True, exist_ok=True)
    for place in policy.writable:
        Path(place).mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if policy.kind != "light":
        end_first()
    found = raise_walls(policy, directory)
    if policy.kind != "light":
        os.environ["HOME"] = str(directory)
        os.environ.update({name: str(directory / place) for name, place in CACHES.items()})
    return found
