"""Messages between server, fork server and children: a length, a JSON object, and file descriptors beside it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

HEADER = struct.Struct(">II")
MAX_FDS = 16
MAX_BYTES = 64 << 20  # the graph of a large model is a few megabytes

Message = dict[str, Any]


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """Send one message; `fds` arrive as new descriptors at the other side."""
    data = _opened(sock, message, fds)
    sock.sendall(data)


def _opened(sock: socket.socket, message: Message, fds: Sequence[int]) -> bytes:
    """Send the header with its descriptors where there are any; what is left to send."""
    data = json.dumps(message).encode()
    header = HEADER.pack(len(data), len(fds))
    if not fds:
        return header + data
    socket.send_fds(sock, [header], list(fds))
    return data


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """The next message and its descriptors, or None when the other side has gone."""
    try:
        head, fds, _, _ = socket.recv_fds(sock, HEADER.size, MAX_FDS)
        data = _exactly(sock, HEADER.unpack(head)[0]) if len(head) == HEADER.size else b""
    except ConnectionError:
        return None
    return (json.loads(data), fds) if data else None


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(min(count - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


async def send_async(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    """As `send`, from a running event loop; the socket must be non-blocking."""
    data = _opened(sock, message, fds)
    await asyncio.get_running_loop().sock_sendall(sock, data)


async def receive_async(sock: socket.socket, fds: list[int] | None = None) -> Message | None:
    """As `receive`, from a running event loop; descriptors are added to `fds`, and dropped by the kernel without it.

    Raises ValueError for what is no message.
    """
    head = await _exactly_async(sock, HEADER.size) if fds is None else await _head_async(sock, fds)
    if head and HEADER.unpack(head)[0] > MAX_BYTES:
        raise ValueError(f"a message of more than {MAX_BYTES} bytes")
    data = await _exactly_async(sock, HEADER.unpack(head)[0]) if head else b""
    try:
        return json.loads(data) if data else None
    except RecursionError:
        raise ValueError("a message that is nested too deeply") from None


async def _head_async(sock: socket.socket, fds: list[int]) -> bytes:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock)
    try:
        head, found, _, _ = socket.recv_fds(sock, HEADER.size, MAX_FDS)
    except ConnectionError:
        return b""
    fds += found
    return head if len(head) == HEADER.size else b""


async def _exactly_async(sock: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    parts = bytearray()
    while len(parts) < count:
        try:
            part = await loop.sock_recv(sock, min(count - len(parts), 1 << 20))
        except ConnectionError:
            return b""
        if not part:
            return b""
        parts += part
    return bytes(parts)
