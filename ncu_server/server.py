"""The MCP shell: puts tools, resources and prompts on one server. No logic lives here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from mcp.server import MCPServer

from mcp_shell import protocol
from mcp_shell.bearer import guard
from ncu_server import places
from ncu_server.judge.problems import Workshop
from ncu_server.machine import versions
from ncu_server.machine.store import Store
from ncu_server.profiler.reports import Reports
from ncu_server.tools import TOOLS, prompts
from ncu_server.tools.state import State
from ncu_server.tools.surface import Surface


def make_server(cache: Path | None = None, token: str | None = None) -> Surface:
    """A server with its own workshop; children start at the first call that needs them. `token` is for HTTP alone.

    Raises Refusal NO_ROOM where no folder can be used.
    """
    where = places.chosen(cache)

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[State]) -> AsyncIterator[State]:
        workshop = Workshop(where)
        cache = workshop.machine.cache
        try:
            yield State(workshop, Reports(cache / "reports"), Store(cache / "kept"))
        finally:
            workshop.close()

    mcp = Surface(
        "ncu_server",
        version=versions.installed("kernel-agent") or "0",
        instructions=prompts.INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
        middleware=[protocol.named],
        **guard(token),
    )
    for add in TOOLS:
        add(mcp)
    prompts.add(mcp)
    return mcp


def main() -> None:
    """Serve on stdio."""
    protocol.serve_stdio(make_server())
