"""The fork server's own side: import torch, then fork a child for each request until the server goes."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path

from ncu_server.machine import versions
from ncu_server.sandbox import limits
from ncu_server.sandbox.enter import adopt_orphans, die_with_parent, enter, outlive_parent
from ncu_server.sandbox.framing import receive, send
from ncu_server.sandbox.policy import Policy, from_wire, installed, summary
from ncu_server.worker import private
from ncu_server.worker.building import triton_cache

WRITES = 4
"""A child may write so many times what its largest file may hold."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A child as the watchdog knows it: where it may write, how many bytes in all, and how many processes the kernel
    had ended for want of memory when it was forked."""

    pid: int
    places: tuple[Path, ...]
    disk: int
    kills: int


def main(control_fd: int) -> None:
    """Serve the control socket: `fork` and `kill` come in, `forked` and `ended` go out."""
    die_with_parent()
    adopt_orphans()
    control = socket.socket(fileno=control_fd)
    packages = ("torch", "triton") if triton_cache.wanted() else ("torch",)
    if refused := private.refusal(packages) or triton_cache.ask_programs():
        send(control, {"refused": refused})
        os._exit(0)
    notes = [*filter(None, map(versions.note, packages)), *_warm_up()]
    wake_in, wake_out = socket.socketpair()
    wake_out.setblocking(False)
    wake_in.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_out.fileno())
    # From here the closed control socket tells that the server has gone; what its builds left behind is killed then.
    outlive_parent()
    send(control, {"ready": os.getpid(), "notes": notes})
    _serve(control, wake_in, [control.fileno(), wake_in.fileno(), wake_out.fileno()])


def _serve(control: socket.socket, wake: socket.socket, private: list[int]) -> None:
    """Until the server goes. `private` are the descriptors that no child may keep."""
    children: dict[int, Fork] = {}
    over: dict[int, limits.Excess] = {}
    cap = limits.memory_cap()
    with selectors.PollSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select(limits.PERIOD_S if children else None)}
            if wake in ready:
                wake.recv(4096)
                _reap(control, children, over)
            if control in ready and not _obey(control, children, private):
                break
            _bound(children, over, cap)
    for child in children.values():
        _kill_group(child.pid)
        os.waitpid(child.pid, 0)
    _kill_strays(())
    os._exit(0)


def _bound(children: dict[int, Fork], over: dict[int, limits.Excess], cap: int) -> None:
    for number, child in children.items():
        found = limits.excess(child.pid, cap) or limits.overfull(child.places, child.disk)
        if found and number not in over:
            over[number] = found
            _kill_group(child.pid)


def _warm_up() -> list[str]:
    """Load what children need, torch and tvm_ffi among it; in words what could not be had."""
    import ncu_server.worker.roles  # noqa: F401
    from ncu_server.worker.building import aliases, modules
    from ncu_server.worker.timing import allocator

    aliases.rename()
    modules.spare_inference_mode()
    allocator.settle_malloc()
    place = os.environ.pop("NCU_SERVER_KEEPING", None)
    lacking = allocator.install(Path(place)) if place else None
    installed()
    gc.collect()
    gc.freeze()
    return [lacking] if lacking else []


def _obey(control: socket.socket, children: dict[int, Fork], private: list[int]) -> bool:
    got = receive(control)
    if got is None:
        return False
    message, fds = got
    if "kill" in message:
        if child := children.get(message["kill"]):
            _kill_group(child.pid)
        return True
    kills = limits.kernel_kills()
    told, tell = os.pipe()
    policy, directory = from_wire(message["walls"]), Path(message["directory"])
    pid = os.fork()
    if pid == 0:
        _be_child([*private, told], tell, fds[0], message["role"], directory, policy)
    os.close(fds[0])
    os.close(tell)
    places = () if policy.kind == "light" else (directory, *map(Path, policy.writable))
    children[message["fork"]] = Fork(pid, places, WRITES * policy.file_bytes, kills)
    # Read to the end: the child closes its side once its walls stand, or dies.
    with os.fdopen(told) as said:
        send(control, {"forked": message["fork"], "pid": pid, "walls": said.read()})
    return True


def _be_child(private: list[int], tell: int, fd: int, role: str, directory: Path, policy: Policy) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for other in private:
        os.close(other)
    found = enter(directory, directory.with_suffix(".log"), policy)
    os.write(tell, summary(found).encode())
    os.close(tell)
    from ncu_server.worker import roles

    roles.serve(role, socket.socket(fileno=fd))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _reap(control: socket.socket, children: dict[int, Fork], over: dict[int, limits.Excess]) -> None:
    """Report ended children, once nothing that they started is left to write.

    The group is killed while the leader's pid is still reserved, so no stranger is hit.
    """
    ended = []
    for number, child in list(children.items()):
        if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            continue
        _kill_group(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        del children[number]
        code = os.waitstatus_to_exitcode(status)
        excess = over.pop(number, None) or _starved(child, code, usage.ru_maxrss << 10)
        ended.append({"ended": number, "code": code, "excess": asdict(excess) if excess else None})
    _kill_strays({child.pid for child in children.values()})
    for message in ended:
        with contextlib.suppress(BrokenPipeError):  # a server that has gone is noticed at the next read
            send(control, message)


def _starved(child: Fork, code: int, peak: int) -> limits.Excess | None:
    """That the kernel ended a child for want of memory: nobody here did, and it has counted one more meanwhile."""
    if code != -signal.SIGKILL or limits.kernel_kills() <= child.kills:
        return None
    return limits.Excess(f"had {peak / limits.GIB:.1f} GiB when the machine ran out of memory", peak)


def _kill_strays(known: Container[int]) -> None:
    """Kill what ended children left behind: it has become ours, whatever session it made for itself."""
    while strays := [pid for pid in limits.children(os.getpid()) if pid not in known]:
        for pid in strays:
            _kill_group(pid)
            os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
