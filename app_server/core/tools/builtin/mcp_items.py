"""The item of a request to an MCP server. If the turn is interrupted, the end of the turn cuts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.results import text_result
from app_server.core.tools.contract import ToolFailure, ToolTurn
from protocol.engine.items import ItemStatus, McpToolCall
from protocol.mcp import ErrResult, McpInvocation, McpResult, OkResult


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
