"""Landlock by raw system calls: which files a process may reach, no TCP, no signals to anything outside.

Constants are of include/uapi/linux/landlock.h; the system call numbers are the same on every architecture.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
PATH_BENEATH = 1
TCP_BIND_CONNECT = 0b11
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
TCP_SINCE, SCOPE_SINCE = 4, 6


class Right(IntFlag):
    """What may be done with a file or below a directory."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.READ_FILE | Right.READ_DIR
RUN = READ | Right.EXECUTE
DEVICE = Right.READ_FILE | Right.WRITE_FILE | Right.IOCTL_DEV
WRITE = (
    READ
    | Right.WRITE_FILE
    | Right.TRUNCATE
    | Right.REFER
    | Right.MAKE_REG
    | Right.MAKE_DIR
    | Right.MAKE_SYM
    | Right.MAKE_FIFO
    | Right.MAKE_SOCK
    | Right.REMOVE_FILE
    | Right.REMOVE_DIR
)
OF_A_FILE = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
RIGHTS_SINCE = {1: (1 << 13) - 1, 2: Right.REFER, 3: Right.TRUNCATE, 5: Right.IOCTL_DEV}


def abi() -> int:
    """The version of Landlock that the kernel has. Raises OSError where it has none."""
    return _call(CREATE_RULESET, None, 0, VERSION_FLAG)


def restrict(version: int, rules: Iterable[tuple[Path, Right]], tcp: bool = False) -> None:
    """Confine the calling thread (and what it starts) to `rules`; paths that do not exist are left out.

    From version 4 no TCP (but where `tcp`), from version 6 no signals to and no abstract sockets of processes outside.
    At any version no process outside can be traced, nor its memory, descriptors or environment read. Needs no_new_privs
    or CAP_SYS_ADMIN. Raises OSError where the kernel refuses.
    """
    handled = 0
    for since, rights in RIGHTS_SINCE.items():
        handled |= int(rights) if version >= since else 0
    fields = [handled]
    if version >= TCP_SINCE:
        fields.append(0 if tcp else TCP_BIND_CONNECT)
    if version >= SCOPE_SINCE:
        fields.append(SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _call(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, int(rights) & handled)
        _call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= int(OF_A_FILE)
        _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: int | bytes | None) -> int:
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(LIBC.syscall(ctypes.c_long(number), *plain))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
