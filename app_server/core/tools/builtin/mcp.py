"""What MCP servers have, as tools of the model: their tools, with a qualified name and the server's own schema, and
three tools for their resources.

Those three are offered even without servers, as in codex 0.58, so that the list of tools is stable. Each request is an
item; if the turn is interrupted, the end of the turn cuts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import Field

from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.mcp.offer import McpTool
from app_server.core.mcp.resources import ListArguments, list_arguments, read_arguments
from app_server.core.mcp.results import text_result
from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import ToolArguments, function_tool, parse_arguments, parse_json
from app_server.core.tools.contract import Tool, ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from protocol.engine.items import ItemStatus, McpToolCall
from protocol.mcp import ErrResult, McpInvocation, McpResult, OkResult
from protocol.structs import replace


async def request_as_item(
    turn: ToolTurn, call_id: str, invocation: McpInvocation, request: Callable[[], Awaitable[str]]
) -> str:
    """The result of `request`, with its item. Raises ToolFailure if the server answers with an error."""
    item = McpToolCall(id=call_id, invocation=invocation)
    turn.items.start(item)
    began = turn.clock()
    try:
        text = await request()
    except McpFailure as failure:
        turn.items.complete(finished_item(item, turn.clock() - began, ErrResult(err=str(failure))))
        raise ToolFailure(str(failure)) from failure
    turn.items.complete(
        finished_item(item, turn.clock() - began, OkResult(ok=text_result(text, is_error=False)))
    )
    return text


def finished_item(item: McpToolCall, seconds: float, result: McpResult) -> McpToolCall:
    """The item with its result; a result that the server marks as an error is a failure."""
    failed = isinstance(result, ErrResult) or bool(result.ok.is_error)
    status = ItemStatus.FAILED if failed else ItemStatus.COMPLETED
    return replace(item, status=status, seconds=seconds, result=result)


class McpServerTool:
    """One tool of one server. The server validates the arguments, because many servers accept more than they declare.
    Absent arguments and null call it without any."""

    parallel = False

    def __init__(self, name: str, offered: McpTool) -> None:
        self.name = name
        self._offered = offered

    def spec(self) -> ToolSpec:
        offered = self._offered
        return FunctionTool(name=self.name, description=offered.description, parameters=offered.input_schema)

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_json(call.arguments)
        invocation = McpInvocation(server=self._offered.server, tool=self._offered.tool, arguments=arguments)
        item = McpToolCall(id=call.call_id, invocation=invocation)
        turn.items.start(item)
        outcome = await turn.mcp.call(self.name, arguments)
        turn.items.complete(finished_item(item, outcome.seconds, outcome.event_result()))
        return ToolOutput(outcome.payload())


def mcp_tools(manager: McpManager) -> list[Tool]:
    return [McpServerTool(name, offered) for name, offered in manager.tools().items()]


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
