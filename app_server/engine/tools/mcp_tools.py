"""Calls of tools of MCP servers: the servers' own tools, and three tools for their resources.

Each request is an item; if the turn is interrupted, the end of the turn ends the item.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial

from app_server.engine.hooks.turn_hooks import NO_TURN_HOOKS
from app_server.engine.mcp.mcp_errors import McpFailure
from app_server.engine.mcp.results import (
    ALL_SERVERS,
    RESOURCES,
    TEMPLATES,
    McpCallOutcome,
    ResourceKind,
    text_result,
)
from app_server.engine.mcp.server_consent import read_only_hint
from app_server.engine.tools.mcp_consent import refusal
from app_server.engine.tools.tool_base import ToolCall, ToolContext, ToolFailure, ToolOutput, text_output
from app_server.engine.tools.tool_schemas import (
    ListingArguments,
    ReadingArguments,
    parse_arguments,
    parse_json,
)
from app_server_protocol.engine.items import ItemStatus, McpToolCall
from app_server_protocol.mcp import ErrResult, McpInvocation, McpModel, McpResult, OkResult
from app_server_protocol.values import replace


async def request_as_item(
    turn: ToolContext, call_id: str, invocation: McpInvocation, request: Callable[[], Awaitable[str]]
) -> str:
    """Return the result of `request`, with its item. Raises ToolFailure if the server answers with an error."""
    item = McpToolCall(id=call_id, invocation=invocation)
    turn.items.start(item)
    began = turn.sources.clock()
    try:
        text = await request()
    except McpFailure as failure:
        turn.items.complete(finished_item(item, turn.sources.clock() - began, ErrResult(err=str(failure))))
        raise ToolFailure(str(failure)) from failure
    turn.items.complete(
        finished_item(item, turn.sources.clock() - began, OkResult(ok=text_result(text, is_error=False)))
    )
    return text


def finished_item(item: McpToolCall, seconds: float, result: McpResult) -> McpToolCall:
    """Return the item with its result; a result that the server marks as an error is a failure."""
    failed = isinstance(result, ErrResult) or bool(result.ok.is_error)
    status = ItemStatus.FAILED if failed else ItemStatus.COMPLETED
    return replace(item, status=status, seconds=seconds, result=result)


async def invoke(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Serve a call of a server's tool, or of one of the three tools for resources."""
    match call.name:
        case "list_mcp_resources" | "list_mcp_resource_templates":
            listing = _listing(call)
            server = (listing.server or "").strip() or ALL_SERVERS
            kind: ResourceKind[McpModel] = RESOURCES if call.name == "list_mcp_resources" else TEMPLATES
            request = partial(turn.mcp.requests.list_entries, kind, listing.server, listing.cursor)
        case "read_mcp_resource":
            given = parse_arguments(call.arguments, ReadingArguments)
            for name, value in (("server", given.server), ("uri", given.uri)):
                if not value.strip():
                    raise ToolFailure(f"{name} must be provided")
            server = given.server
            request = partial(turn.mcp.requests.read_resource, server.strip(), given.uri.strip())
        case _:
            return await _call_server(call, turn)
    # The events show the arguments as the model wrote them.
    invocation = McpInvocation(server=server, tool=call.name, arguments=parse_json(call.arguments))
    return text_output(await request_as_item(turn, call.call_id, invocation, request))


async def _call_server(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Call the tool of a server. The server validates the arguments, because many servers accept more than they
    declare. If the arguments are absent or null, the tool is called without arguments.
    """
    arguments = parse_json(call.arguments)
    tool = turn.mcp.tools().get(call.name)
    if tool is None:
        raise ToolFailure(f"unsupported call: {call.name}")
    invocation = McpInvocation(server=tool.server, tool=tool.tool, arguments=arguments)
    item = McpToolCall(id=call.call_id, invocation=invocation, read_only_hint=read_only_hint(tool))
    turn.items.start(item)
    began = turn.sources.clock()
    refused = None
    if arguments is None or isinstance(
        arguments, dict
    ):  # a call whose arguments are neither fails without a question
        try:
            refused = await refusal(call, tool, arguments, turn)
        except ToolFailure as denied:
            refused = str(denied)
    if refused is None:
        async with nullcontext() if item.read_only_hint else turn.changes.command():
            outcome = await turn.mcp.requests.call(call.name, arguments)
    else:
        outcome = McpCallOutcome(None, refused, turn.sources.clock() - began)
    turn.items.complete(finished_item(item, outcome.seconds, outcome.event_result()))
    told = None if outcome.result is None or turn.hooks is NO_TURN_HOOKS else outcome.result.to_value()
    return ToolOutput(outcome.payload(), response=told)


def _listing(call: ToolCall) -> ListingArguments:
    """Parse the arguments of a listing. Null means no arguments, as with the servers' own tools."""
    return parse_arguments("" if parse_json(call.arguments) is None else call.arguments, ListingArguments)
