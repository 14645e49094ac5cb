"""How the arguments of tools are refused."""

from __future__ import annotations

from typing import Any, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from mcp_shell.protocol import instead, sentence

State = TypeVar("State")


class Surface(MCPServer[State]):
    """An MCP server that refuses arguments which a tool does not have, and names what cannot be used."""

    refusal = ""
    """What a refusal begins with."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[State, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by name. Raises ToolError with one sentence."""
        known = {tool.name: list(tool.input_schema["properties"]) for tool in await self.list_tools()}
        if name not in known:
            raise ToolError(f"{self.refusal}there is no tool {name!r}{instead(name, known)}")
        if unknown := sorted(set(arguments) - set(known[name])):
            there = instead(unknown[0], known[name])
            raise ToolError(f"{self.refusal}{name} has no argument {unknown[0]!r}{there}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(fault := error.__cause__, ValidationError):
                raise ToolError(f"{self.refusal}{sentence(fault)}") from fault
            raise
