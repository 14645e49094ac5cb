"""The zygote's own side: import torch, then fork a child for each request until the server goes."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
from pathlib import Path

from ncu_server.framing import receive, send
from ncu_server.sandbox import die_with_parent, enter


def main(control_fd: int) -> None:
    """Serve the control socket: `fork` and `kill` come in, `forked` and `ended` go out."""
    die_with_parent()
    control = socket.socket(fileno=control_fd)
    _warm()
    wake_in, wake_out = socket.socketpair()
    wake_out.setblocking(False)
    wake_in.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_out.fileno())
    send(control, {"ready": os.getpid()})
    children: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wake_in, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake_in in ready:
                wake_in.recv(4096)
                _reap(control, children)
            if control in ready and not _obey(control, children):
                break
    for pid in children.values():
        _kill_group(pid)
    os._exit(0)


def _warm() -> None:
    import ncu_server.worker.roles  # noqa: F401  everything a child needs, torch and tvm_ffi among it

    gc.collect()
    gc.freeze()


def _obey(control: socket.socket, children: dict[int, int]) -> bool:
    got = receive(control)
    if got is None:
        return False
    message, fds = got
    if "kill" in message:
        if pid := children.get(message["kill"]):
            _kill_group(pid)
        return True
    pid = os.fork()
    if pid == 0:
        _be_child(control, fds[0], message["role"], Path(message["directory"]))
    os.close(fds[0])
    children[message["fork"]] = pid
    send(control, {"forked": message["fork"], "pid": pid})
    return True


def _be_child(control: socket.socket, fd: int, role: str, directory: Path) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control.close()
    enter(directory, directory.with_suffix(".log"))
    from ncu_server.worker import roles

    roles.serve(role, socket.socket(fileno=fd))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _reap(control: socket.socket, children: dict[int, int]) -> None:
    """Report ended children. The group is killed while the leader's pid is still reserved, so no stranger is hit."""
    for number, pid in list(children.items()):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            continue
        _kill_group(pid)
        _, status = os.waitpid(pid, 0)
        del children[number]
        with contextlib.suppress(BrokenPipeError):  # a server that has gone is noticed at the next read
            send(control, {"ended": number, "code": os.waitstatus_to_exitcode(status)})


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
