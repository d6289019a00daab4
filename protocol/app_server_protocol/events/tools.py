"""Tools that are no command: the plan, searches that the provider runs, and MCP: calls, lists, elicitations."""

from typing import Literal

from app_server_protocol import mcp
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import PlanItemArg
from app_server_protocol.events.command_events import Duration
from app_server_protocol.outgoing import EngineStruct


class PlanUpdateEvent(EngineStruct):
    """The plan as it now is; it replaces the one before."""

    type: Literal["plan_update"] = "plan_update"
    explanation: str | None = None
    plan: tuple[PlanItemArg, ...]


class WebSearchBeginEvent(EngineStruct):
    """The provider searches the web."""

    type: Literal["web_search_begin"] = "web_search_begin"
    call_id: str


class WebSearchEndEvent(EngineStruct):
    """A search came back. After the `item_completed` of the search."""

    type: Literal["web_search_end"] = "web_search_end"
    call_id: str
    query: str


class McpToolCallBeginEvent(EngineStruct):
    """A tool of a server is called."""

    type: Literal["mcp_tool_call_begin"] = "mcp_tool_call_begin"
    call_id: str
    invocation: "mcp.McpInvocation"


class McpToolCallEndEvent(EngineStruct):
    """The call came back or failed. Exactly one for each begin."""

    type: Literal["mcp_tool_call_end"] = "mcp_tool_call_end"
    call_id: str
    invocation: "mcp.McpInvocation"
    duration: Duration
    result: "mcp.McpResult"


class McpListToolsResponseEvent(EngineStruct):
    """Answer to the operation `list_mcp_tools`: what every server offers, keyed by the qualified tool name
    (tools) or by server (the rest)."""

    type: Literal["mcp_list_tools_response"] = "mcp_list_tools_response"
    tools: "dict[str, mcp.McpToolDefinition]"
    resources: "dict[str, tuple[mcp.Resource, ...]]"
    resource_templates: "dict[str, tuple[mcp.ResourceTemplate, ...]]"
    auth_statuses: "dict[str, mcp.McpAuthStatus]"


class ElicitationRequestEvent(EngineStruct):
    """A server asks the user something while one of its tools runs. Between begin and end of that call.
    Clients that did not opt in never see it: the question is declined for them."""

    type: Literal["elicitation_request"] = "elicitation_request"
    server_name: str
    id: str
    message: str
    requested_schema: Json = None
