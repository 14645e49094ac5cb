"""One real server over stdio for all tests of this folder."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.measuring import Server, opened, server_parameters


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with opened(server_parameters(tmp_path_factory.mktemp("cache"))) as found:
        yield found
