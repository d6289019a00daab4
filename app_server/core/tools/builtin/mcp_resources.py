"""The three tools that show the model what MCP servers have to read.

They are offered whether or not there are servers, as the reference does, so that the list of tools is stable.
"""

from __future__ import annotations

from typing import Final

from app_server.core.mcp.contract import McpFailure
from app_server.core.mcp.resources import list_arguments, read_arguments
from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.builtin.mcp_events import asked
from app_server.core.tools.contract import Tool, ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from protocol.base import Json
from protocol.mcp import McpInvocation

_SERVER = {"type": "string", "description": "The server's name in the configuration."}

LISTING: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "server": {
            **_SERVER,
            "description": "The server's name; without it those of all servers are listed.",
        },
        "cursor": {"type": "string", "description": "Where to go on: the `nextCursor` of the page before."},
    },
    "additionalProperties": False,
}
READING: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "server": _SERVER,
        "uri": {"type": "string", "description": "The resource, as it was listed."},
    },
    "required": ["server", "uri"],
    "additionalProperties": False,
}
ANYTHING: Final[dict[str, Json]] = {"type": "object"}
"""What is accepted; the arguments are judged by the part that uses them."""


class ListResourcesTool:
    name = "list_mcp_resources"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Lists what MCP servers offer to read, such as files or schemas.",
            parameters=LISTING,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        raw = parse_arguments(call.arguments, ANYTHING)
        try:
            arguments = list_arguments(raw)
        except McpFailure as failure:
            raise ToolFailure(str(failure)) from failure
        invocation = McpInvocation(server=arguments.invoked_server, tool=self.name, arguments=raw)
        return text_output(
            await asked(turn, call.call_id, invocation, lambda: turn.mcp.list_resources(arguments))
        )


class ListTemplatesTool:
    name = "list_mcp_resource_templates"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Lists the URI templates of what MCP servers offer to read.",
            parameters=LISTING,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        raw = parse_arguments(call.arguments, ANYTHING)
        try:
            arguments = list_arguments(raw)
        except McpFailure as failure:
            raise ToolFailure(str(failure)) from failure
        invocation = McpInvocation(server=arguments.invoked_server, tool=self.name, arguments=raw)
        return text_output(
            await asked(turn, call.call_id, invocation, lambda: turn.mcp.list_templates(arguments))
        )


class ReadResourceTool:
    name = "read_mcp_resource"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name, description="Reads one resource of an MCP server.", parameters=READING
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        raw = parse_arguments(call.arguments, ANYTHING)
        try:
            arguments = read_arguments(raw)
        except McpFailure as failure:
            raise ToolFailure(str(failure)) from failure
        invocation = McpInvocation(server=arguments.invoked_server, tool=self.name, arguments=raw)
        return text_output(
            await asked(turn, call.call_id, invocation, lambda: turn.mcp.read_resource(arguments))
        )


RESOURCE_TOOLS: Final[tuple[Tool, ...]] = (ListResourcesTool(), ListTemplatesTool(), ReadResourceTool())
