"""What holds between timed blocks: nobody else runs; and that the end of every process is told."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

from ncu_server.sandbox.child import ChildFault, End
from ncu_server.sandbox.forkserver import ForkServer
from ncu_server.sandbox.framing import receive, send
from ncu_server.worker.verbs import Peaks

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_child_rests_until_it_is_asked_again(tmp_path: Path) -> None:
    fork_server = ForkServer(tmp_path, {"OMP_NUM_THREADS": "1"} | {"PATH": os.environ["PATH"]}, "cpu")
    try:
        child = await fork_server.spawn("judge")
        child.rest()
        async with asyncio.timeout(10):
            while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                await asyncio.sleep(0.01)
        with pytest.raises(ChildFault, match="has no attribute 'peaks'"):
            await child.ask(Peaks(), timeout_s=30)
        child.rest()
        child.close()
        async with asyncio.timeout(10):
            await child.ended
    finally:
        fork_server.close()


async def test_the_end_of_a_child_is_reported_though_it_comes_with_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork server that answers by this script, and a process that stands for the child."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    fork_server = ForkServer(tmp_path, {}, "cpu")

    async def start() -> None:
        fork_server._process, fork_server._control = subprocess.Popen(["true"]), ours
        fork_server._reader = asyncio.create_task(fork_server._listen(ours))

    monkeypatch.setattr(fork_server, "_start", start)
    spawning = asyncio.create_task(fork_server.spawn("judge"))
    asked = await asyncio.to_thread(receive, theirs)
    assert asked
    message, (channel,) = asked
    number = message["fork"]
    send(theirs, {"forked": number, "pid": os.getpid(), "walls": ""})
    send(theirs, {"ended": number, "code": 3, "excess": None})
    child = await spawning
    async with asyncio.timeout(10):
        assert await child.ended == End(3)
    child.close()
    theirs.close()
    os.close(channel)
    await fork_server.cleared()
    fork_server.close()
