"""A seccomp filter by raw BPF: what no kernel under test needs answers EPERM, everything else is let through.

Numbers are of the kernel's x86-64 and generic (aarch64) system call tables; None where an architecture lacks a call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

# audit architecture, column of the table below, number of seccomp(2)
MACHINES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}
X32_BIT = 0x40000000
Number = tuple[int | None, int | None]

# Looking into other processes, changing the machine, ways around the other walls.
NEVER: dict[str, Number] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    # what outlives its process
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # owners and attributes of files: Landlock does not cover them
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
# Nothing but threads in the step that runs; compilers and linkers need these in the build.
NOT_IN_RUN: dict[str, Number] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "tkill": (200, 130),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
MESSAGES: dict[str, Number] = {"sendmsg": (46, 211), "sendmmsg": (307, 269)}
CONNECT: Number = (42, 203)
SENDTO: Number = (44, 206)
SOCKET: Number = (41, 198)
PRCTL: Number = (157, 167)
CLONE: Number = (56, 220)
CLONE3: Number = (435, 435)
# Calls whose argument of that index must be 0 or the process's own id.
OWN_ONLY: dict[str, tuple[Number, int]] = {
    "prlimit64": ((302, 261), 0),
    "sched_setparam": ((142, 118), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setattr": ((314, 274), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
}
OWN_SIGNALS: dict[str, tuple[Number, int]] = {
    "kill": ((62, 129), 0),
    "tgkill": ((234, 131), 0),
    "rt_sigqueueinfo": ((129, 138), 0),
    "rt_tgsigqueueinfo": ((297, 240), 0),
}

AF_UNIX = 1
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
CLONE_THREAD = 0x10000
CLONE_NEW_ANYTHING = 0x7E020080
SET_MODE_FILTER = 1
# Without it kernels before 5.16 turn on mitigations that slow the filtered process down, and its timings with it.
FLAG_SPEC_ALLOW = 1 << 2

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16

Instruction = tuple[int, int, int, int]


def no_new_privileges() -> None:
    """Programs started from here on gain nothing by set-user-id bits; the two filters ask for it."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def install(may_start: bool, local_sockets: bool) -> None:
    """Filter the calling thread and what it starts.

    `may_start` lets programs and processes be started (the build); without it only threads. `local_sockets` lets UNIX
    sockets be connected, which CUDA's multi-process service needs. Raises OSError where the kernel or the
    architecture does not do it.
    """
    if platform.machine() not in MACHINES:
        raise OSError(errno.ENOSYS, f"no filter is written for {platform.machine()}")
    load(program(may_start, local_sockets, os.getpid()))


def load(rows: list[Instruction]) -> None:
    """Give the kernel a filter. Raises OSError where it does not take it."""
    code = b"".join(struct.pack("=HBBI", *row) for row in rows)
    room = ctypes.create_string_buffer(code)
    described = struct.pack("@HP", len(code) // 8, ctypes.addressof(room))
    libc = ctypes.CDLL(None, use_errno=True)
    number = MACHINES[platform.machine()][2]
    for flags in (FLAG_SPEC_ALLOW, 0):
        if libc.syscall(ctypes.c_long(number), SET_MODE_FILTER, flags, described) == 0:
            return
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def program(may_start: bool, local_sockets: bool, pid: int) -> list[Instruction]:
    """The filter's instructions; each rule leaves the call's number loaded where it does not match."""
    audit, column, _ = MACHINES[platform.machine()]
    rows: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 1, 0, audit),
        _answer(errno.EPERM),
        (LOAD, 0, 0, NUMBER_AT),
        (AT_LEAST, 0, 1, X32_BIT),
        _answer(errno.EPERM),
    ]
    plain = NEVER if may_start else NEVER | NOT_IN_RUN
    refused = dict.fromkeys((plain if local_sockets else plain | MESSAGES).values(), errno.EPERM)
    # glibc falls back to clone, whose flags can be read.
    refused[CLONE3] = errno.ENOSYS
    if not local_sockets:
        refused[CONNECT] = errno.ECONNREFUSED
        rows += _on(SENDTO[column], _null(4))
    for numbers, code in refused.items():
        rows += _on(numbers[column], [_answer(code)])
    rows += _on(SOCKET[column], _among(0, (AF_UNIX,)))
    rows += _on(PRCTL[column], [_argument(0), (EQUAL, 0, 1, PR_SET_PDEATHSIG), _answer(errno.EPERM), _allow()])
    bit, hit = (CLONE_NEW_ANYTHING, 0) if may_start else (CLONE_THREAD, 1)
    rows += _on(CLONE[column], [_argument(0), (ANY_BIT, hit, 1 - hit, bit), _answer(errno.EPERM), _allow()])
    for numbers, index in (OWN_ONLY if may_start else OWN_ONLY | OWN_SIGNALS).values():
        rows += _on(numbers[column], _among(index, (0, pid)))
    return [*rows, _allow()]


def _on(number: int | None, then: list[Instruction]) -> list[Instruction]:
    return [(EQUAL, 0, len(then), number), *then] if number is not None else []


def _among(index: int, allowed: tuple[int, ...]) -> list[Instruction]:
    last = len(allowed)
    checks = [(EQUAL, last - i, 0, value) for i, value in enumerate(allowed)]
    return [_argument(index), *checks, _answer(errno.EPERM), _allow()]


def _null(index: int) -> list[Instruction]:
    low, high = ARGUMENTS_AT + 8 * index, ARGUMENTS_AT + 8 * index + 4
    halves = [(LOAD, 0, 0, low), (EQUAL, 0, 2, 0), (LOAD, 0, 0, high), (EQUAL, 1, 0, 0)]
    return [*halves, _answer(errno.EPERM), _allow()]


def _argument(index: int) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS_AT + 8 * index)


def _answer(code: int) -> Instruction:
    return (RETURN, 0, 0, ERRNO | code)


def _allow() -> Instruction:
    return (RETURN, 0, 0, ALLOW)
