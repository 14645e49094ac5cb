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

from mcp_shell.protocol import report
from ncu_server.errors import Code, Refusal
from ncu_server.judge.problems import Workshop
from ncu_server.machine import activity
from ncu_server.machine.lease import Progress
from ncu_server.machine.store import Store
from ncu_server.profiler.reports import Reports
from ncu_server.wire.meta import about

HEARTBEAT_S = 5.0


@dataclass(slots=True)
class State:
    """What lives as long as the server; `store` outlives it."""

    workshop: Workshop
    reports: Reports
    store: Store


ToolContext = Context[State, Any]


def state(ctx: ToolContext) -> State:
    """What the tool of this call may use."""
    return ctx.request_context.lifespan_context


@contextlib.asynccontextmanager
async def served(ctx: ToolContext, timeout_s: float | None) -> AsyncIterator[Progress]:
    """Progress with a heartbeat inside; every fault leaves as a tool error, one sentence that starts with its code.

    Whoever waits for a device says so in the progress messages, with how many are ahead.
    """
    latest: tuple[str, int | None] = ("starting", None)
    count = 0

    async def progress(message: str, *, ahead: int | None = None) -> None:
        nonlocal count, latest
        count += 1
        latest = message, ahead
        at.changed.clear()
        await report(ctx, count, message, about(at.stage, ahead))

    async def beat() -> None:
        """Say again what goes on, now and then, and at once where the call comes to another stage."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(at.changed.wait(), HEARTBEAT_S)
            message, ahead = latest
            if ahead is not None and at.stage == "device":  # its turn has come, and it has said nothing since
                message, ahead = "on the device", None
            await progress(message, ahead=ahead)

    stack = contextlib.ExitStack()
    at = stack.enter_context(activity.call())
    heart = asyncio.create_task(beat())
    try:
        async with asyncio.timeout(timeout_s):
            yield progress
    except Refusal as refusal:
        raise ToolError(str(refusal)) from refusal
    except TimeoutError:
        sentence = f"the call took longer than timeout_s = {timeout_s} s while {latest[0]}; raise timeout_s"
        raise ToolError(f"{Code.TOOK_TOO_LONG}: {sentence} or ask for less") from None
    except Exception as fault:
        logging.getLogger("ncu_server").exception("a tool failed")
        raise ToolError(f"{Code.INTERNAL}: {type(fault).__name__}: {fault}") from fault
    finally:
        heart.cancel()
        stack.close()
