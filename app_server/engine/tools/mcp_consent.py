"""Approval of the model's calls of MCP tools: whether the user is asked, and the effect of the answer.

A server runs with the user's rights, outside of the sandbox. So the approval policy decides: with `never`, a call that
needs approval fails, unless the turn has full access. Clients of an API that is older than hints can call tools without
hints, unless the settings ask for approval of these.
"""

from __future__ import annotations

from typing import Final

from pydantic_core import to_json

from app_server.engine.approvals.consent import EVERYTHING, Consent, McpCallSubject
from app_server.engine.config.mcp_server_settings import McpServerConfig
from app_server.engine.hooks.turn_hooks import NO_TURN_HOOKS
from app_server.engine.mcp.server_consent import (
    annotations_of,
    approvals_last,
    is_silent,
    needs_approval,
)
from app_server.engine.mcp.tool_catalog import McpTool
from app_server.engine.support.engine_errors import ConfigError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools import hook_questions, mcp_settings
from app_server.engine.tools.rights import policy_rights
from app_server.engine.tools.tool_base import ToolCall, ToolContext
from app_server_protocol.encoding import Json
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.questions import McpCallDecision, McpCallQuestion
from app_server_protocol.policy import AskForApproval, DangerFullAccess, ReviewDecision

AS_ELICITATION: Final = "tool_call_mcp_elicitation"
"""Feature with which clients of the thread API get the question as an elicitation of the server."""


# Clients show these texts as the reason of a failed call.
POLICY_NEVER: Final = "MCP tool call requires approval, but approval policy is never"
REJECTED: Final = "user rejected MCP tool call"
CANCELLED: Final = "user cancelled MCP tool call"
NOBODY: Final = "MCP tool call requires approval, and no client that is connected can be asked"
CHANGED: Final = "MCP tool changed while the user was asked about it"


async def refusal(call: ToolCall, tool: McpTool, arguments: Json, turn: ToolContext) -> str | None:
    """Return the reason why the call must not be made, as text for the model and the user; None if it may be made.
    Raises HookDenied with such a reason.
    """
    config, call_id, name, word = turn.mcp.configs[tool.server], call.call_id, call.name, call.word
    if word.asks is None and not needs_approval(config, tool):
        return None
    if turn.settings.approval_policy is AskForApproval.NEVER:
        unconfined = isinstance(turn.settings.sandbox_policy, DangerFullAccess)
        runs = unconfined or (not turn.strictness.silent_tools and is_silent(config, tool))
        return None if runs else POLICY_NEVER
    consent = Consent(subject_of(tool), run=EVERYTHING, policy=policy_rights(turn))
    if word.approves:
        turn.report_decision(name, call_id, ReviewDecision.APPROVED)
        return None
    if word.asks is None and approvals_last(config, tool) and turn.approvals.remembered.covers(consent):
        turn.report_decision(name, call_id, ReviewDecision.APPROVED_FOR_SESSION, by_user=True)
        return None
    match await _ask(call, tool, config, arguments, turn):
        case McpCallDecision.ONCE:
            decision = ReviewDecision.APPROVED
        case McpCallDecision.SESSION:
            decision = ReviewDecision.APPROVED_FOR_SESSION
        case McpCallDecision.ALWAYS:
            decision = ReviewDecision.APPROVED_FOR_SESSION
            await _keep(config, tool, turn)
        case McpCallDecision.CANCELLED:
            turn.report_decision(name, call_id, ReviewDecision.DENIED, by_user=True)
            return CANCELLED
        case McpCallDecision.DECLINED:
            turn.report_decision(name, call_id, ReviewDecision.DENIED, by_user=True)
            return REJECTED
        case None:
            turn.report_decision(name, call_id, ReviewDecision.DENIED)
            return NOBODY
    turn.report_decision(name, call_id, decision, by_user=True)
    if decision is ReviewDecision.APPROVED_FOR_SESSION:
        turn.approvals.remembered.remember(consent)
    shown_then, now = subject_of(tool), turn.mcp.tools().get(name)
    return None if now is not None and subject_of(now) == shown_then else CHANGED


async def _ask(
    call: ToolCall, tool: McpTool, config: McpServerConfig, arguments: Json, turn: ToolContext
) -> McpCallDecision | None:
    """Ask the user; return None if nobody could be asked."""
    lasting = await _lasting(config, tool, turn)
    question = McpCallQuestion(
        call_id=call.call_id,
        server=tool.server,
        tool=tool.tool,
        description=tool.definition.description,
        annotations=annotations_of(tool),
        arguments={} if arguments is None else arguments,
        lasting=lasting,
        as_inquiry=not turn.config.features.enabled(AS_ELICITATION),
        reason=call.word.asks,
    )
    if turn.hooks is not NO_TURN_HOOKS and await hook_questions.is_approved(call.call_id, question, turn):
        return McpCallDecision.ONCE
    answer = await turn.approvals.questions.ask(call.call_id, lambda: turn.emit(question))
    await turn.approvals.flush()
    return _as_offered(answer, lasting) if isinstance(answer, McpCallDecision) else None


async def _lasting(config: McpServerConfig, tool: McpTool, turn: ToolContext) -> tuple[McpCallDecision, ...]:
    """Return the lasting approvals that the user is offered, the widest last."""
    if not approvals_last(config, tool):
        return ()
    if await run_in_thread(mcp_settings.can_keep_approval, turn.config, config):
        return McpCallDecision.SESSION, McpCallDecision.ALWAYS
    return (McpCallDecision.SESSION,)


def _as_offered(decision: McpCallDecision, lasting: tuple[McpCallDecision, ...]) -> McpCallDecision:
    """Return the decision; in place of a lasting approval that was not offered, the widest that was."""
    if decision in lasting or decision not in (McpCallDecision.SESSION, McpCallDecision.ALWAYS):
        return decision
    return lasting[-1] if lasting else McpCallDecision.ONCE


async def _keep(config: McpServerConfig, tool: McpTool, turn: ToolContext) -> None:
    """Write to the settings that the tool is approved for every conversation. If that fails, emit a warning; the
    approval then holds for this conversation.
    """
    try:
        await run_in_thread(mcp_settings.keep_approval, turn.config, config, tool.tool)
    except ConfigError as error:
        turn.emit(WarningNotice(message=f"The approval holds for this conversation only: {error}"))


def subject_of(tool: McpTool) -> McpCallSubject:
    """Return the subject of an approval: the tool with its description, schema and hints, whatever the arguments."""
    return McpCallSubject(tool.server, tool.tool, tool.digest, to_json(annotations_of(tool)))
