"""The walls of one child, raised in the child itself, and which of them stand on this machine.

`run` holds a candidate's execution: no program, no process, no network, files only in its own directory. `build` holds
its compilation: compilers may run. A profiler needs programs, sockets of its own and the right to counters: `profile`
is around it, no way to the network, and `profiled` is raised by the process that it watches, before any foreign code
runs there: no files but its own. `light` is for the trusted side. Left open, by measure or by need: names and command
lines in /proc, the CPU affinity of the user's other processes, permission bits and times of files (in the build).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ncu_server.places import PACKAGE, ROOT
from ncu_server.sandbox import landlock, limits, seccomp

Kind = Literal["light", "build", "run", "profile", "profiled"]
MAY_EXECUTE = ("build", "profiled")
FILE_BYTES = 1 << 30  # a precompiled torch header takes half of it
CLONE_NEWUSER, CLONE_NEWIPC, CLONE_NEWNET = 0x10000000, 0x08000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
CAPSET, CAPABILITIES_V3 = {"x86_64": 126, "aarch64": 91}, 0x20080522
# Root inside a container keeps reading what other users own; Landlock says which files.
KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/nix/store")
CONFIGURATION = (
    "alternatives",
    "ccache.conf",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "nvidia",
    "OpenCL",
    "os-release",
    "passwd",
    "timezone",
)
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom")
GPU_DEVICES = ("nvidia*", "nvidia-caps/*", "nvidia-caps-imex-channels/*", "kfd", "dri/*")
TOOLS = ("c++", "g++", "gcc", "cc", "clang", "clang++", "nvcc", "hipcc", "ninja", "ccache", "ptxas", "ld", "as")
HOMES = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH")
MPS_DIRECTORY = "/tmp/nvidia-mps"


@dataclass(frozen=True, slots=True)
class Policy:
    """What one child may reach beside its own directory. `device` `cpu` hides GPUs and bounds the address space."""

    kind: Kind
    device: str
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    file_bytes: int = FILE_BYTES

    @property
    def reaches_gpus(self) -> bool:
        """Whether it may open the devices of GPUs, whose drivers map more than memory that there is."""
        return self.device != "cpu"


@dataclass(frozen=True, slots=True)
class WallStatus:
    """One wall: whether it stands here, and how, or why not."""

    name: str
    stands: bool
    why: str


def from_wire(message: Mapping[str, Any]) -> Policy:
    """The walls that a message asks for."""
    lists = {name: tuple(message[name]) for name in ("readable", "writable")}
    return Policy(**{**message, **lists})


def raise_walls(policy: Policy, directory: Path) -> list[WallStatus]:
    """Raise what this machine has around the calling process, which has one thread; say what stands."""
    found = []
    for name in RAISED[policy.kind]:
        try:
            found.append(WallStatus(name, True, WALLS[name](policy, directory)))
        except OSError as fault:
            found.append(WallStatus(name, False, fault.strerror or str(fault)))
    return found


def summary(found: list[WallStatus]) -> str:
    """The walls that stood in few words, for a verdict's provenance."""
    up, down = ([s.name for s in found if s.stands is stands] for stands in (True, False))
    return (", ".join(up) or "none") + (f"; not: {', '.join(down)}" if down else "")


def wall_statuses(kind: Kind, device: str = "cpu") -> list[WallStatus]:
    """The walls that a child of this kind gets here, found by raising them in a process of its own."""
    program = "import sys, ncu_server.sandbox.policy as w; w.report(*sys.argv[1:])"
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", program, kind, device, directory],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return [WallStatus("walls", False, f"the trial process failed: {last}")]
    return [WallStatus(**row) for row in json.loads(done.stdout)]


def report(kind: Kind, device: str, directory: str) -> None:
    """Raise the walls here and write what stands to stdout as JSON."""
    sys.stdout.write(json.dumps([asdict(s) for s in raise_walls(Policy(kind, device), Path(directory))]))


def _memory(policy: Policy, directory: Path) -> str:
    cap = limits.memory_cap()
    resource.setrlimit(resource.RLIMIT_FSIZE, (policy.file_bytes, policy.file_bytes))
    if not policy.reaches_gpus:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * limits.PAGE
        _lower(resource.RLIMIT_AS, cap + mapped)
    return f"at most {cap / (1 << 30):.1f} GiB, looked at every {limits.PERIOD_S} s"


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _network(policy: Policy, directory: Path) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0:
        return "network and IPC namespaces of its own" + _loopback(policy)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) != 0:
        raise OSError(errno.EPERM, "neither root nor user namespaces may make network namespaces here")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    return "network, IPC and user namespaces of its own" + _loopback(policy)


def _loopback(policy: Policy) -> str:
    """Bring it up for a profiler, which speaks with its target over it."""
    if policy.kind != "profile":
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_of:
        fcntl.ioctl(any_of, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    return ", with a loopback"


def _privileges(policy: Policy, directory: Path) -> str:
    seccomp.no_new_privileges()
    machine = os.uname().machine
    if machine not in CAPSET:
        raise OSError(errno.ENOSYS, f"capset's number is not known for {machine}")
    permitted = next(int(r.split()[1], 16) for r in _status() if r.startswith("CapPrm")) & KEPT_CAPABILITIES
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = struct.pack("=Ii", CAPABILITIES_V3, 0), struct.pack("=6I", permitted, permitted, 0, 0, 0, 0)
    if libc.syscall(ctypes.c_long(CAPSET[machine]), header, sets) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "no new privileges, capabilities dropped"


def _status() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


def _files(policy: Policy, directory: Path) -> str:
    try:
        version = landlock.abi()
    except OSError:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock (Linux 5.13 with lsm=landlock)") from None
    # The rule for /proc/self holds for this very entry; open, it is not dropped and made anew under memory pressure.
    os.open("/proc/self", os.O_PATH)
    if policy.kind == "profiled":
        seccomp.no_new_privileges()
    landlock.restrict(version, rules(policy, directory), tcp=policy.kind == "profiled")
    missing = [
        what
        for what, since in (("truncation", 3), ("TCP", 4), ("ioctl", 5), ("signals", 6))
        if version < since and not (policy.kind == "run" and what in ("TCP", "signals"))
        if not (policy.kind == "profiled" and what == "TCP")
    ]
    return f"Landlock ABI {version}" + (f", which does not hold {', '.join(missing)}" if missing else "")


def _calls(policy: Policy, directory: Path) -> str:
    shared = policy.reaches_gpus and _mps() is not None
    seccomp.install(may_start=policy.kind == "build", local_sockets=shared)
    what = "compilers may run" if policy.kind == "build" else "no program, no process but threads"
    return f"seccomp: {what}, no sockets{' but local ones (CUDA MPS is in use)' if shared else ''}"


def _others(policy: Policy, directory: Path) -> str:
    """Not raised but tried: the parent's environment may hold what its starter's did."""
    try:
        Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        return "memory and environment of other processes are out of reach"
    raise OSError(errno.EPERM, "environment and memory of the user's other processes can be read")


WALLS: dict[str, Callable[[Policy, Path], str]] = {
    "memory": _memory,
    "network": _network,
    "privileges": _privileges,
    "files": _files,
    "system calls": _calls,
    "other processes": _others,
}

RAISED: dict[Kind, tuple[str, ...]] = {
    "light": (),
    "build": tuple(WALLS),
    "run": tuple(WALLS),
    "profile": ("memory", "network"),
    "profiled": ("files",),
}


def rules(policy: Policy, directory: Path) -> Iterator[tuple[Path, landlock.Right]]:
    """What Landlock lets through. Execution is for the build alone; mapping a library needs only the right to read."""
    read = landlock.RUN if policy.kind in MAY_EXECUTE else landlock.READ
    for path in (*map(Path, SYSTEM), *(Path("/etc") / name for name in CONFIGURATION), *installed(), Path("/proc")):
        yield path, read
    # CUDA dies with error 304 where it cannot write the names of its threads, which it opens to truncate (seen on an
    # H100). Only its own, not those of a process that it starts: /proc/sys is below /proc.
    yield Path("/proc/self"), landlock.READ | landlock.Right.WRITE_FILE | landlock.Right.TRUNCATE
    for name in PLAIN_DEVICES:
        yield Path("/dev") / name, landlock.DEVICE
    if policy.reaches_gpus:
        for pattern in GPU_DEVICES:
            yield from ((node, landlock.DEVICE) for node in Path("/dev").glob(pattern))
        if mps := _mps():
            yield mps, landlock.WRITE
    for name in policy.readable:
        yield Path(name), read
    run = landlock.Right.EXECUTE if policy.kind in MAY_EXECUTE else landlock.Right(0)
    for path in (directory, *map(Path, policy.writable)):
        yield path, landlock.WRITE | run


@functools.cache
def installed() -> tuple[Path, ...]:
    """Where the interpreter, its packages, this package, compilers and CUDA lie; never a home as a whole."""
    found = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)} | {PACKAGE}
    named = [p for p in sys.path if p]
    named += [os.environ[v] for v in HOMES if os.environ.get(v)]
    named += [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    for tool in (*TOOLS, os.environ.get("CC", ""), os.environ.get("CXX", "")):
        place = shutil.which(tool) if tool else None
        for path in (Path(place), Path(place).resolve()) if place else ():
            named += [str(path.parent), str(path.parent.parent)]
    kept = (Path(os.environ.get("HOME", "/")).resolve(), ROOT)
    for path in (Path(name).resolve() for name in named):
        if not any(k.is_relative_to(path) for k in kept) and not any(path.is_relative_to(s) for s in SYSTEM):
            found.add(path)
    return tuple(sorted(found))


def _mps() -> Path | None:
    path = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS_DIRECTORY))
    return path if path.is_dir() else None
