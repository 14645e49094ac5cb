"""What a tool may use while it is called, and how a fault leaves it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from ncu_server.errors import Code, Refusal
from ncu_server.judge.problems import Workshop
from ncu_server.machine.lease import Progress
from ncu_server.machine.store import Store
from ncu_server.profiler.reports import Reports

HEARTBEAT_S = 5.0


@dataclass(slots=True)
class State:
    """What lives as long as the server; `kept` outlives it."""

    workshop: Workshop
    reports: Reports
    kept: Store


ToolContext = Context[State, Any]


def state(ctx: ToolContext) -> State:
    """What the tool of this call may use."""
    return ctx.request_context.lifespan_context


@contextlib.asynccontextmanager
async def served(ctx: ToolContext, timeout_s: float | None) -> AsyncIterator[Progress]:
    """Progress with a heartbeat inside; every fault leaves as a tool error, one sentence that starts with its code.

    Whoever waits for a device says so in the progress messages, with how many are ahead.
    """
    said = ["starting"]
    count = 0

    async def progress(message: str) -> None:
        nonlocal count
        count += 1
        said[0] = message
        await ctx.report_progress(count, None, message)

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await progress(said[0])

    heart = asyncio.create_task(beat())
    try:
        async with asyncio.timeout(timeout_s):
            yield progress
    except Refusal as refusal:
        raise ToolError(str(refusal)) from refusal
    except TimeoutError:
        sentence = f"the call took longer than timeout_s = {timeout_s} s while {said[0]}; raise timeout_s"
        raise ToolError(f"{Code.TOOK_TOO_LONG}: {sentence} or ask for less") from None
    except Exception as fault:
        logging.getLogger("ncu_server").exception("a tool failed")
        raise ToolError(f"{Code.INTERNAL}: {type(fault).__name__}: {fault}") from fault
    finally:
        heart.cancel()
