"""One real server over stdio, and one set of processes in this process's hands, for all tests of this folder."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ncu_server.judge.problems import Problems, Workshop
from tests.support.measuring import Server, opened, server_parameters


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with opened(server_parameters(tmp_path_factory.mktemp("cache"))) as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def warm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    """A workshop whose fork servers are warm, with the problems that were prepared last."""
    made = Workshop(tmp_path_factory.mktemp("cache"))
    yield made
    await asyncio.to_thread(made.close)


@pytest_asyncio.fixture(loop_scope="session")
async def workshop(warm: Workshop) -> AsyncIterator[Workshop]:
    """The same, in which no problem is prepared."""
    yield warm
    warm.problems.close()
    warm.problems = Problems()
