"""One real server over stdio for all tests of this folder."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from mcp import Client

from tests.measuring import Server, server_parameters


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """Opened and closed by one task, as the SDK asks."""
    cache = tmp_path_factory.mktemp("cache")
    opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def hold() -> None:
        async with Client(server_parameters(cache)) as client:
            opened.set_result(client)
            await done.wait()

    task = asyncio.create_task(hold())
    await asyncio.wait((task, opened), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    yield Server(await opened)
    done.set()
    await task
