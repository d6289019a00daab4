"""Tools of MCP servers as tools of the model: with a qualified name and the server's own schema."""

from __future__ import annotations

from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.mcp.offer import McpTool
from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_json
from app_server.core.tools.builtin.mcp_items import finished_item
from app_server.core.tools.contract import Tool, ToolCall, ToolOutput, ToolTurn
from protocol.engine.items import McpToolCall
from protocol.mcp import McpInvocation


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
