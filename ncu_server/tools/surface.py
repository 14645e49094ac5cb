"""What holds for every tool: how its arguments are refused, and how its schemas are sent."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, GetPromptResult, InputRequiredResult, Tool

from mcp_shell import surface
from mcp_shell.protocol import instead
from ncu_server.errors import Code
from ncu_server.tools.state import State


class Surface(surface.Surface[State]):
    """An MCP server whose every refusal is `CODE: sentence`, also that of arguments that do not fit."""

    refusal = f"{Code.BAD_ARGUMENT}: "

    async def list_tools(self) -> list[Tool]:
        """The tools as they were added; arguments that a tool does not have are refused, and its schema says so."""
        return [tool.model_copy(update=_schemas(tool)) for tool in await super().list_tools()]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[State, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by name. Raises ToolError with `CODE: sentence`."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
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
