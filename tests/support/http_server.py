"""A real server that listens on loopback, and a wait for what it does."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.measuring import Server, server_parameters

TOKEN = "a-token-of-these-tests"


@dataclass
class Served:
    """A server that listens: its address and its process."""

    url: str
    pid: int

    @contextlib.asynccontextmanager
    async def client(self, mode: str = "auto", token: str = TOKEN) -> AsyncIterator[Server]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=300) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,  # type: ignore[arg-type]
        ):
            yield Server(client)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "ncu_server", "--http", *options]


def environment(cache: Path, **more: str) -> dict[str, str]:
    found = {k: v for k, v in (server_parameters(cache).env or {}).items() if k != "NCU_SERVER_TOKEN"}
    return found | more


@contextlib.contextmanager
def served(cache: Path, *options: str) -> Iterator[Served]:
    env = environment(cache, NCU_SERVER_TOKEN=TOKEN)
    with subprocess.Popen(command("--port", "0", *options), stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        yield Served(first.rpartition(" ")[2].strip(), process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


async def until(condition: object, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)
