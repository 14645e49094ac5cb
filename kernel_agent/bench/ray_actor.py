"""What runs in a Ray actor: a measuring server as its child, and the calls that come for it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from kernel_agent.bench.connection import Connection
from kernel_agent.bench.transport import Endpoint
from kernel_agent.errors import KernelAgentError, ServerError
from kernel_agent.interfaces import Stage


class Fault(NamedTuple):
    """An exception of kernel_agent.errors by its name, and whether the child is lost."""

    kind: str
    sentence: str
    lost: bool


Said = Stage | Fault | dict[str, Any]
"""What comes of a call: stages, and at last an answer or a fault."""


class ServerActor:
    """A server started by `path`, on the GPU that Ray gives this actor; it ends with the actor."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="measuring-")
        self._line: Connection | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Fault | None:
        """Start the child, unless it lives."""
        async with self._opening:
            if self._line is not None and not self._line.is_lost:
                return None
            line = Connection(Endpoint(self._path), Path(self._folder.name), self._timeout_s, restarts=0)
            try:
                self._line = await line.__aenter__()
            except KernelAgentError as fault:
                return Fault(type(fault).__name__, str(fault), True)
            return None

    async def close(self) -> None:
        """End the child."""
        if self._line is not None:
            await self._line.__aexit__(None, None, None)

    async def call(
        self, tool: str, arguments: dict[str, Any], patience_s: float | None, whole: bool
    ) -> AsyncIterator[Said]:
        """A tool's stages as they come, then its answer."""
        said: asyncio.Queue[Said] = asyncio.Queue()
        work = asyncio.create_task(self._called(tool, arguments, said, patience_s, whole))
        try:
            while True:
                one = await said.get()
                yield one
                if not isinstance(one, Stage):
                    return
        finally:
            work.cancel()

    async def _called(
        self, tool: str, arguments: dict[str, Any], said: asyncio.Queue[Said], patience_s: float | None, whole: bool
    ) -> None:
        try:
            if self._line is None:
                raise ServerError("the actor was started anew.")
            said.put_nowait(await self._line.call(tool, arguments, said.put_nowait, patience_s, whole))
        except KernelAgentError as fault:
            said.put_nowait(Fault(type(fault).__name__, str(fault), self._line is None or self._line.is_lost))

    async def resource(self, uri: str) -> tuple[Any, Fault | None]:
        """The JSON of a resource."""
        try:
            if self._line is None:
                raise ServerError("the actor was started anew.")
            return await self._line.resource(uri), None
        except KernelAgentError as fault:
            return None, Fault(type(fault).__name__, str(fault), self._line is None or self._line.is_lost)
