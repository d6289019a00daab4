"""The three tools for resources of MCP servers.

They are offered even without servers, as in codex 0.58, so that the list of tools is stable.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.resources import ListArguments, list_arguments, read_arguments
from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, function_tool, parse_arguments, parse_json
from app_server.core.tools.builtin.mcp_items import request_as_item
from app_server.core.tools.contract import Tool, ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from protocol.mcp import McpInvocation


class ListingArguments(ToolArguments):
    server: str | None = Field(
        None, description="The server's name; without it those of all servers are listed."
    )
    cursor: str | None = Field(None, description="Where to go on: the `nextCursor` of the page before.")


class ReadingArguments(ToolArguments):
    server: str = Field(description="The server's name in the configuration.")
    uri: str = Field(description="The resource, as it was listed.")


class ListResourcesTool:
    name = "list_mcp_resources"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ListingArguments, "Lists what MCP servers offer to read, such as files or schemas."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = _listing(call)
        invocation = _invocation(call, arguments.invoked_server)
        return text_output(
            await request_as_item(turn, call.call_id, invocation, lambda: turn.mcp.list_resources(arguments))
        )


class ListTemplatesTool:
    name = "list_mcp_resource_templates"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ListingArguments, "Lists the URI templates of what MCP servers offer to read."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = _listing(call)
        invocation = _invocation(call, arguments.invoked_server)
        return text_output(
            await request_as_item(turn, call.call_id, invocation, lambda: turn.mcp.list_templates(arguments))
        )


class ReadResourceTool:
    name = "read_mcp_resource"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(self.name, ReadingArguments, "Reads one resource of an MCP server.")

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        given = parse_arguments(call.arguments, ReadingArguments)
        try:
            arguments = read_arguments(given.server, given.uri)
        except McpFailure as failure:
            raise ToolFailure(str(failure)) from failure
        invocation = _invocation(call, arguments.invoked_server)
        return text_output(
            await request_as_item(turn, call.call_id, invocation, lambda: turn.mcp.read_resource(arguments))
        )


def _listing(call: ToolCall) -> ListArguments:
    """Null means no arguments, as with the servers' own tools."""
    text = "" if parse_json(call.arguments) is None else call.arguments
    given = parse_arguments(text, ListingArguments)
    return list_arguments(given.server, given.cursor)


def _invocation(call: ToolCall, server: str) -> McpInvocation:
    """For the events: the arguments as the model wrote them."""
    return McpInvocation(server=server, tool=call.name, arguments=parse_json(call.arguments))


RESOURCE_TOOLS: Final[tuple[Tool, ...]] = (ListResourcesTool(), ListTemplatesTool(), ReadResourceTool())
