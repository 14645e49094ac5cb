"""Messages between server, fork server and children, with the descriptors beside them."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncu_server.sandbox.framing import receive_async, send
from ncu_server.sandbox.shared_memory import Shared

Pair = tuple[socket.socket, socket.socket]


def is_open(inode: int) -> bool:
    """Whether this process has a descriptor of that file."""
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that is read here
            if place.stat().st_ino == inode:
                return True
    return False


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.asyncio
async def test_descriptors_of_a_process_of_ours_arrive(pair: Pair) -> None:
    given, fds = os.memfd_create("arrives"), []
    waiting = asyncio.create_task(receive_async(pair[0], fds))
    await asyncio.sleep(0)
    send(pair[1], {"value": 1}, [given])
    assert await waiting == {"value": 1}
    assert [os.fstat(fd).st_ino for fd in fds] == [os.fstat(given).st_ino]
    for fd in (given, *fds):
        os.close(fd)
    assert await asyncio.gather(receive_async(pair[0], fds), asyncio.to_thread(send, pair[1], {"value": 2})) == [
        {"value": 2},
        None,
    ]


@pytest.mark.asyncio
async def test_descriptors_of_a_candidate_do_not_arrive(pair: Pair) -> None:
    given = os.memfd_create("stays away")
    inode = os.fstat(given).st_ino
    assert is_open(inode)
    send(pair[1], {"value": 1}, [given])
    os.close(given)
    assert await receive_async(pair[0]) == {"value": 1}
    assert not is_open(inode)


@pytest.mark.asyncio
async def test_a_process_that_has_gone_gives_nothing(pair: Pair) -> None:
    pair[1].close()
    assert await receive_async(pair[0], []) is None


def test_memory_of_a_device_takes_the_place_of_the_hosts() -> None:
    memory, other = Shared("host"), os.memfd_create("device")
    before = memory.fd
    memory.replace(other, 100)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(before)
    memory.seal({"structure": {}, "tensors": [], "bytes": 90})
    assert (memory.fd, memory.on_device, memory.freeze()) == (other, True, 100)
    twin = memory.again(memory.spec)
    memory.close()
    assert (twin.on_device, os.fstat(twin.fd).st_size) == (True, 0)
    twin.close()
