"""Calls of the model with hooks: `PreToolUse` before rules, approval and sandbox, `PostToolUse` when the output is
known.

A denied call is an item that was declined. A call with another input is judged again by all other hooks, and then as if
the model had made it so: by rules, policy and sandbox. Loaded with the first call of a turn that has hooks.
"""

from __future__ import annotations

from app_server.engine.hooks import hook_input
from app_server.engine.hooks.active_hooks import developer_text
from app_server.engine.hooks.decision import HookContext, HookRewrite
from app_server.engine.hooks.hook_definitions import HookHandler
from app_server.engine.hooks.hook_output import Verdict
from app_server.engine.mcp.server_consent import read_only_hint
from app_server.engine.tools.client_tool import DynamicTool
from app_server.engine.tools.hook_names import (
    BASH,
    PATCH,
    CallRewriteFailed,
    described,
    rewritten,
)
from app_server.engine.tools.hook_questions import asked_user, may_ask
from app_server.engine.tools.shell_tools import command_of
from app_server.engine.tools.tool_base import (
    HookedCall,
    HookWord,
    Tool,
    ToolCall,
    ToolContext,
    ToolFailure,
    ToolOutput,
    text_output,
)
from app_server.engine.tools.tool_events import unstarted_command
from app_server.engine.tools.tool_schemas import parse_json
from app_server.engine.workspace.patch.changes import refused_changes
from app_server.engine.workspace.patch.parse import PatchError, parse_patch
from app_server_protocol.engine.hook_events import HookEvent
from app_server_protocol.engine.items import FileChange, Item, ItemStatus, McpToolCall
from app_server_protocol.mcp import ErrResult, McpInvocation
from app_server_protocol.policy import ReviewDecision
from app_server_protocol.responses import MessageItem
from app_server_protocol.values import replace


async def serve(call: ToolCall, tool: Tool, turn: ToolContext) -> ToolOutput:
    """Serve a call of a turn with hooks. Raises ToolFailure if it is denied, or if the tool cannot serve it."""
    judged = _Judged(call)
    try:
        await _judge(judged, tool, turn)
    except _Blocked as blocked:
        turn.report_decision(judged.hooked.name, call.call_id, ReviewDecision.DENIED)
        text = _blocked_text(judged.hooked, str(blocked))
        show_declined(judged.call, tool, judged.hooked, text, turn)
        raise ToolFailure(text) from None
    turn.hooked[call.call_id] = judged.hooked
    try:
        output = await tool.invoke(judged.call, turn)
    except ToolFailure as failure:
        if not judged.contexts:
            raise
        output = text_output(str(failure), success=False)
    else:
        output = await _finished(judged.hooked, output, turn)
    finally:
        del turn.hooked[call.call_id]
    return _with_items(output, turn.hooks.context_messages(judged.contexts))


class _Blocked(Exception):
    """The call must not be made; the text is the reason."""


class _Judged:
    """A call while hooks judge it."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.hooked = HookedCall(call.name, (call.name,), {})
        self.contexts: list[HookContext] = []


async def _judge(judged: _Judged, tool: Tool, turn: ToolContext) -> None:
    """Run the hooks until none of them wants another input. Raises _Blocked."""
    hooks = turn.hooks
    kept: HookRewrite | None = None
    rewriters: list[HookHandler] = []
    while True:
        hooked = judged.hooked = described(judged.call, tool, turn)
        if hooks.stop is not None:
            raise _Blocked(f"the turn ends: {hooks.stop}")
        if not hooks.has(HookEvent.PRE_TOOL_USE):
            return
        decision = await hooks.run(
            HookEvent.PRE_TOOL_USE,
            hook_input.tool_use(hooked.name, hooked.input, judged.call.call_id),
            *hooked.names,
            call_id=judged.call.call_id,
            without=None if kept is None else kept.handler,
        )
        judged.contexts += decision.contexts
        if decision.verdict is Verdict.DENY:
            raise _Blocked(decision.reason)
        if hooks.stop is not None:
            raise _Blocked(f"the turn ends: {hooks.stop}")
        rewrite = decision.rewrite
        if rewrite is None or rewrite.input == hooked.input:
            break
        if rewrite.handler in rewriters:
            raise _Blocked("its hooks do not agree on an input")
        rewriters.append(rewrite.handler)
        try:
            judged.call, kept = rewritten(judged.call, rewrite.input, tool, turn), rewrite
        except CallRewriteFailed as failed:
            raise _Blocked(str(failed)) from None
    # The one who wrote the input did not judge it again: what it said of it counts.
    verdict = decision.verdict if kept is None else max(decision.verdict, kept.verdict)
    reasons = [decision.reason] if kept is None else [decision.reason, kept.reason]
    reason = "; ".join(filter(None, reasons))
    if verdict is Verdict.ASK and not may_ask(turn.settings):
        raise _Blocked(f"{reason}, and the user may not be asked")
    if verdict is Verdict.ASK and not _asks_itself(hooked, judged.call, turn):
        id, text = judged.call.call_id, f"May the model use {hooked.name}? {reason}"
        if not await asked_user(turn.approvals, id, "Tool call", text, turn.emit):
            raise _Blocked(f"{reason}, and the user did not say yes")
        verdict = Verdict.NONE
    word = HookWord(reason if verdict is Verdict.ASK else None, approves=verdict is Verdict.ALLOW)
    judged.call = replace(judged.call, word=word)


def _asks_itself(hooked: HookedCall, call: ToolCall, turn: ToolContext) -> bool:
    """Return whether the tool of a call has a question of its own about it."""
    return hooked.name in (BASH, PATCH) or call.name in turn.mcp.tools()


async def _finished(hooked: HookedCall, output: ToolOutput, turn: ToolContext) -> ToolOutput:
    hooks = turn.hooks
    if not hooks.has(HookEvent.POST_TOOL_USE):
        return output
    response = output.payload.content if output.response is None else output.response
    own = hook_input.tool_result(hooked.name, hooked.input, hooked.call_id, response)
    decision = await hooks.run(HookEvent.POST_TOOL_USE, own, *hooked.names, call_id=hooked.call_id)
    messages = turn.hooks.context_messages(decision.contexts)
    if decision.verdict is Verdict.DENY:
        messages = (
            developer_text(f"A PostToolUse hook objects to this result: {decision.reason}"),
            *messages,
        )
    return _with_items(output, messages)


def _with_items(output: ToolOutput, messages: tuple[MessageItem, ...]) -> ToolOutput:
    return replace(output, followup_items=(*output.followup_items, *messages)) if messages else output


def _blocked_text(hooked: HookedCall, reason: str) -> str:
    """Return the text for the model, which is that of codex."""
    command = hooked.input.get("command") if isinstance(hooked.input, dict) else None
    if isinstance(command, str):
        return f"Command blocked by PreToolUse hook: {reason}. Command: {command}"
    return f"Tool call blocked by PreToolUse hook: {reason}. Tool: {hooked.name}"


def show_declined(call: ToolCall, tool: Tool, hooked: HookedCall, text: str, turn: ToolContext) -> None:
    """Show the item of a declined call, if calls of its tool are items. `text`: what the model is told."""
    try:
        found = _items(call, tool, hooked, text, turn)
    except (ToolFailure, PatchError):
        return  # arguments that no tool understands are no item without a hook either
    if found is not None:
        started, ended = found
        turn.items.start(started)
        turn.items.complete(ended)


def _items(
    call: ToolCall, tool: Tool, hooked: HookedCall, text: str, turn: ToolContext
) -> tuple[Item, Item] | None:
    """Return the item as it starts and as it ends; None if the calls of a tool are no items."""
    if hooked.name == BASH:
        command = command_of(call, turn).item()
        return command, unstarted_command(command, text, 0.0, declined=True)
    if hooked.name == PATCH:
        changes = refused_changes(parse_patch(hooked.input["command"]), turn.settings.cwd)
        patch = FileChange(id=call.call_id, changes=changes)
        return patch, replace(patch, status=ItemStatus.DECLINED, stderr=text)
    if (served := turn.mcp.tools().get(call.name)) is not None:
        invocation = McpInvocation(
            server=served.server, tool=served.tool, arguments=parse_json(call.arguments)
        )
        item = McpToolCall(id=call.call_id, invocation=invocation, read_only_hint=read_only_hint(served))
        return item, replace(item, status=ItemStatus.DECLINED, result=ErrResult(err=text), seconds=0.0)
    if isinstance(tool, DynamicTool):
        dynamic = tool.item(call)
        content = ({"type": "inputText", "text": text},)
        return dynamic, replace(
            dynamic, status=ItemStatus.DECLINED, success=False, content=content, seconds=0.0
        )
    return None
