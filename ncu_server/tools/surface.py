"""What holds for every tool: what a call gets while it runs, how it is refused, and in which order tools are listed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, GetPromptResult, InputRequiredResult, Tool, ToolAnnotations
from pydantic import AfterValidator, Field, ValidationError

from ncu_server.build.store import Store
from ncu_server.errors import Code, Refusal
from ncu_server.judge.problems import Workshop
from ncu_server.machine.lease import Progress
from ncu_server.profiler.reports import Reports
from ncu_server.tools.protocol import instead, sentence

HEARTBEAT_S = 5.0
MOST_SOURCE = 1 << 18  # characters: its rules are read in seconds
ORDER = (
    "check_environment",
    "describe_problem",
    "compile_kernel",
    "evaluate_kernel",
    "verify_module",
    "profile_kernel",
    "read_report",
    "query_metrics",
    "compare_reports",
    "disassemble",
    "sanitize_kernel",
)
"""The order that tools are listed in, whichever of them there are: clients keep what they are shown in caches."""

READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
RUNS_CODE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

TimeoutS = Annotated[float, Field(gt=0, le=3600, description="limit for the whole call in seconds, queueing included")]


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


class Surface(MCPServer[State]):
    """An MCP server whose every refusal is `CODE: sentence`, also that of arguments that do not fit."""

    async def list_tools(self) -> list[Tool]:
        """The tools in their order; arguments that a tool does not have are refused, and its schema says so."""
        found = sorted(await super().list_tools(), key=lambda tool: ORDER.index(tool.name))
        return [tool.model_copy(update=_schemas(tool)) for tool in found]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[State, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by name. Raises ToolError with `CODE: sentence`."""
        known = {tool.name: list(tool.input_schema["properties"]) for tool in await self.list_tools()}
        if name not in known:
            raise ToolError(f"{Code.BAD_ARGUMENT}: there is no tool {name!r}{instead(name, known)}")
        if unknown := sorted(set(arguments) - set(known[name])):
            there = instead(unknown[0], known[name])
            raise ToolError(f"{Code.BAD_ARGUMENT}: {name} has no argument {unknown[0]!r}{there}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{Code.BAD_ARGUMENT}: {sentence(error.__cause__)}") from error
            if isinstance(error.__cause__, ToolError):
                raise error.__cause__ from None
            raise

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[State, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """A prompt by name. Raises MCPError where there is none, or where an argument is missing or not one of its."""
        known = {prompt.name: prompt.arguments or [] for prompt in await self.list_prompts()}
        if name not in known:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {name!r}{instead(name, known)}")
        given, has = arguments or {}, [argument.name for argument in known[name]]
        if unknown := sorted(set(given) - set(has)):
            raise MCPError(INVALID_PARAMS, f"{name} has no argument {unknown[0]!r}{instead(unknown[0], has)}")
        if missing := [one.name for one in known[name] if one.required and one.name not in given]:
            raise MCPError(INVALID_PARAMS, f"the argument {missing[0]!r} of {name} is missing")
        return await super().get_prompt(name, arguments, context)


def _schemas(tool: Tool) -> dict[str, Any]:
    """Its schemas as they are sent: closed to further arguments, and without the titles that repeat each name."""
    given = _untitled(tool.input_schema) | {"additionalProperties": False}
    return {"input_schema": given, "output_schema": _untitled(tool.output_schema)}


def _untitled(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_untitled(part) for part in schema]
    if isinstance(schema, dict):
        return {k: _untitled(v) for k, v in schema.items() if not (k == "title" and isinstance(v, str))}
    return schema


def _plain(text: str) -> str:
    """Without the mark that some editors put first, and with plain line ends, as Python reads a source and compilers
    its macros. Raises ValueError for what no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no text") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


SourceText = Annotated[str, Field(max_length=MOST_SOURCE), AfterValidator(_plain)]
"""A source as an argument of a tool."""


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
