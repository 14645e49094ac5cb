"""What a forked child does: answer verbs of its role until the server closes the channel."""

from __future__ import annotations

import os
import socket
import traceback
from typing import Any

import torch

from ncu_server.sandbox.framing import receive, send
from ncu_server.worker import device_memory
from ncu_server.worker.builder import Builder
from ncu_server.worker.candidate import Candidate
from ncu_server.worker.comparer import Judge
from ncu_server.worker.reference import Reference
from ncu_server.worker.verbs import VERBS

ROLES: dict[str, type[Any]] = {
    "builder": Builder,
    "reference": Reference,
    "candidate": Candidate,
    "judge": Judge,
}
TRACE_TAIL = 6000


def serve(role: str, sock: socket.socket) -> None:
    """Answer each message with `value` or with `fault` (class, text and trace of what was raised)."""
    worker = ROLES[role]()
    while (got := receive(sock)) is not None:
        message, fds = got
        try:
            verb = VERBS[message["verb"]](**message["arguments"])
            answer = {"value": getattr(worker, verb.name())(fds, **vars(verb))}
        except BaseException as fault:  # noqa: BLE001  whatever a candidate raises, SystemExit included, is an answer
            answer = {"fault": _fault(fault)}
        given = device_memory.handed(fds)
        if given:
            answer["given"] = [[place, room] for place, _, room in given]
        for fd in fds:
            if fd >= 0:  # what a role has mapped it may have closed
                os.close(fd)
        try:
            send(sock, answer, [descriptor for _, descriptor, _ in given])
        except (BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
            return
        for _, descriptor, _ in given:
            os.close(descriptor)


def _lacks_host_memory(fault: BaseException) -> bool:
    """Whether the host refused memory, to Python, to a library with an exception of its own, or to torch."""
    on_host = isinstance(fault, torch.OutOfMemoryError) and not torch.cuda.is_initialized()
    return on_host or isinstance(fault, MemoryError)


def _fault(fault: BaseException) -> dict[str, str]:
    trace = "".join(traceback.format_exception(fault))
    kind = MemoryError if _lacks_host_memory(fault) else type(fault)
    return {"kind": kind.__name__, "text": str(fault)[:TRACE_TAIL], "trace": trace[-TRACE_TAIL:]}
