"""Nothing of a program outlives its supervisor."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from ncu_server.sandbox.policy import Policy
from ncu_server.sandbox.supervisor import Supervisor
from tests.support.measuring import descendants

LEAVES = "import os, time, sys\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n"


async def test_what_it_prints_and_how_it_ends_is_told() -> None:
    ended = await Supervisor().run([sys.executable, "-c", "import sys; print(1); sys.exit(7)"], 30)
    assert (ended.code, ended.output) == (7, b"1\n")
    assert (await Supervisor().run(["/no/such/program"], 30)).code == 127
    killed = await Supervisor().run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], 30)
    assert killed.code == 128 + 11


async def test_what_a_program_leaves_behind_ends_with_it() -> None:
    before = descendants(os.getpid())
    assert (await Supervisor().run([sys.executable, "-c", LEAVES], 30)).code == 0
    assert not descendants(os.getpid()) - before


async def test_a_timeout_and_a_cancel_leave_nothing() -> None:
    before = descendants(os.getpid())
    with pytest.raises(TimeoutError):
        await Supervisor().run([sys.executable, "-c", LEAVES + "time.sleep(1000)"], 1)
    assert not descendants(os.getpid()) - before
    running = asyncio.Event()
    call = asyncio.create_task(
        Supervisor().run(
            [sys.executable, "-c", LEAVES + "print(1, flush=True); time.sleep(1000)"], 60, lambda _: running.set()
        )
    )
    await running.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not descendants(os.getpid()) - before


async def test_behind_the_walls_around_a_profiler_there_is_a_loopback_and_no_more(tmp_path: Path) -> None:
    program = """
import socket
def tried(what):
    try:
        what()
    except OSError as fault:
        return "no"
    return "yes"
server = socket.create_server(("127.0.0.1", 0))
print(tried(lambda: socket.create_connection(server.getsockname())))
print(tried(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5)))
"""
    ended = await Supervisor(tmp_path, Policy("profile", "cuda")).run([sys.executable, "-c", program], 60, merged=True)
    assert ended.output.split() == [b"yes", b"no"]
