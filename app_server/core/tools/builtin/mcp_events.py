"""The events around whatever is asked of an MCP server: one begin, exactly one end, also where it is interrupted
the turn's end stands for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app_server.core.mcp.contract import McpFailure
from app_server.core.mcp.results import text_result
from app_server.core.tools.contract import ToolFailure, ToolTurn
from protocol.events.commands import Duration
from protocol.events.mcp import McpToolCallBeginEvent, McpToolCallEndEvent
from protocol.mcp import ErrResult, McpInvocation, McpResult, OkResult


async def asked(
    turn: ToolTurn, call_id: str, invocation: McpInvocation, ask: Callable[[], Awaitable[str]]
) -> str:
    """What `ask` returns, told as a tool's result. Raises ToolFailure where the server refuses."""
    turn.emit(McpToolCallBeginEvent(call_id=call_id, invocation=invocation))
    began = turn.clock()
    try:
        text = await ask()
    except McpFailure as failure:
        end(turn, call_id, invocation, turn.clock() - began, ErrResult(err=str(failure)))
        raise ToolFailure(str(failure)) from failure
    end(turn, call_id, invocation, turn.clock() - began, OkResult(ok=text_result(text, is_error=False)))
    return text


def end(turn: ToolTurn, call_id: str, invocation: McpInvocation, seconds: float, result: McpResult) -> None:
    duration = Duration.from_seconds(seconds)
    turn.emit(McpToolCallEndEvent(call_id=call_id, invocation=invocation, duration=duration, result=result))
