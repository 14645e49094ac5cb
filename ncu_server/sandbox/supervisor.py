"""Runs a program of somebody else's so that nothing of it outlives the call, the call's timeout, or this server.

Between the server and the program stands a warden: a small process that adopts whatever the program leaves behind. It
kills all of it when the program ends, and when its stdin closes, which happens when the server lets go or dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncu_server.places import ROOT
from ncu_server.sandbox import limits
from ncu_server.sandbox.enter import adopt_orphans, end_first
from ncu_server.sandbox.policy import Policy, from_wire, raise_walls

BOOTSTRAP = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ncu_server.sandbox import supervisor
supervisor.guard(json.loads(sys.argv[2]))
"""
CHUNK, KEPT = 1 << 16, 64 << 20
OVER = 125


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code (128 and the number of the signal that killed it), and what it printed."""

    code: int
    output: bytes


class Supervisor:
    """One program: `walls`, where there are any, stand around it and have `directory` as its world."""

    def __init__(
        self, directory: Path | None = None, walls: Policy | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._directory, self._walls, self._environment = directory, walls, environment

    async def run(
        self,
        command: Sequence[str],
        timeout_s: float | None,
        heard: Callable[[bytes], None] | None = None,
        merged: bool = False,
    ) -> Ended:
        """Run it to its end; `heard` gets its output as it comes, `merged` adds what it prints as errors.

        Raises TimeoutError after `timeout_s`; then, as after a cancel, all that it started is gone.
        """
        order = {
            "command": list(command),
            "directory": str(self._directory) if self._directory else None,
            "walls": asdict(self._walls) if self._walls else None,
        }
        path = json.dumps([str(ROOT), *(p for p in sys.path if p)])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-s", "-c", BOOTSTRAP, path, json.dumps(order)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if merged else asyncio.subprocess.DEVNULL,
            env=None if self._environment is None else dict(self._environment),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_s):
                output = await _read(process.stdout, heard)
                code = await process.wait()
        finally:
            if process.stdin:
                process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                await asyncio.shield(process.wait())
        return Ended(code, output)


async def _read(stream: asyncio.StreamReader | None, heard: Callable[[bytes], None] | None) -> bytes:
    assert stream is not None, "stdout is a pipe"
    output = bytearray()
    while part := await stream.read(CHUNK):
        output += part[: max(0, KEPT - len(output))]
        if heard:
            heard(part)
    return bytes(output)


def guard(order: dict[str, Any]) -> None:
    """The warden's life: start the program, wait for its end or for the server's, leave nothing behind."""
    adopt_orphans()
    child = os.fork()
    if child == 0:
        _become(order)
    handle = os.pidfd_open(child)
    cap, kills, code = limits.memory_cap(), limits.kernel_kills(), None
    while code is None:
        ready, _, _ = select.select([handle, 0], [], [], limits.PERIOD_S)
        if handle in ready:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            starved = status == -signal.SIGKILL and limits.kernel_kills() > kills
            code = OVER if starved else status if status >= 0 else 128 - status
        elif 0 in ready:
            code = 128 + signal.SIGKILL
        elif order["walls"] and limits.excess(child, cap):
            code = OVER
    _kill_all()
    os._exit(code)


def _become(order: dict[str, Any]) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        if order["directory"]:
            os.chdir(order["directory"])
        if order["walls"]:
            end_first()
            raise_walls(from_wire(order["walls"]), Path(order["directory"]))
        os.execvp(order["command"][0], order["command"])
    except OSError as fault:
        os.write(2, f"{order['command'][0]}: {fault.strerror}\n".encode())
        os._exit(127)


def _kill_all() -> None:
    """Kill whatever is left below this process, in whatever session it is."""
    while left := limits.children(os.getpid()):
        for pid in left:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
