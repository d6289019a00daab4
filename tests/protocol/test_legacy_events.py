"""The engine's notices and questions in the words of codex 0.58: one event for each, with the same facts."""

from __future__ import annotations

from typing import get_args

import pytest

from app_server_protocol.encoding import Json
from app_server_protocol.engine import notices, questions
from app_server_protocol.engine.item_values import AddFileChange, PlanItemArg, StepStatus, UnknownCommand
from app_server_protocol.engine.legacy import legacy_event
from app_server_protocol.engine.notices import CustomPrompt, HistoryEntry
from app_server_protocol.engine.token_usage import RateLimitSnapshot, TokenUsage, TokenUsageInfo
from app_server_protocol.mcp import McpAuthStatus
from app_server_protocol.responses import InputText, MessageItem

USAGE = TokenUsage(input_tokens=7, total_tokens=7)
NO_TOKENS = {
    "input_tokens": 0,
    "cached_input_tokens": 0,
    "output_tokens": 0,
    "reasoning_output_tokens": 0,
    "total_tokens": 0,
}
SEVEN = {**NO_TOKENS, "input_tokens": 7, "total_tokens": 7}

NOTICES: list[tuple[notices.Notice, Json]] = [
    (notices.ErrorNotice("x"), {"type": "error", "message": "x"}),
    (notices.WarningNotice("x"), {"type": "warning", "message": "x"}),
    (notices.DeprecationNotice("x"), {"type": "deprecation_notice", "summary": "x"}),
    (
        notices.DeprecationNotice("x", "why"),
        {"type": "deprecation_notice", "summary": "x", "details": "why"},
    ),
    (notices.ProgressNotice("x"), {"type": "background_event", "message": "x"}),
    (notices.UndoStarted(), {"type": "undo_started"}),
    (notices.UndoStarted("x"), {"type": "undo_started", "message": "x"}),
    (notices.UndoCompleted(False, "x"), {"type": "undo_completed", "success": False, "message": "x"}),
    (notices.SessionClosed(), {"type": "shutdown_complete"}),
    (notices.TokenUsageUpdated(), {"type": "token_count", "info": None, "rate_limits": None}),
    (
        notices.TokenUsageUpdated(TokenUsageInfo(total_token_usage=USAGE, last_token_usage=TokenUsage())),
        {
            "type": "token_count",
            "info": {"total_token_usage": SEVEN, "last_token_usage": NO_TOKENS, "model_context_window": None},
            "rate_limits": None,
        },
    ),
    (
        notices.TokenUsageUpdated(rate_limits=RateLimitSnapshot()),
        {"type": "token_count", "info": None, "rate_limits": {"primary": None, "secondary": None}},
    ),
    (
        notices.PlanUpdated("why", (PlanItemArg(step="x", status=StepStatus.PENDING),)),
        {"type": "plan_update", "explanation": "why", "plan": [{"step": "x", "status": "pending"}]},
    ),
    (notices.TurnDiffUpdated("d"), {"type": "turn_diff", "unified_diff": "d"}),
    (
        notices.HistoryItemRecorded(MessageItem(role="user", content=(InputText(text="x"),))),
        {
            "type": "raw_response_item",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        },
    ),
    (
        notices.HistoryEntryFound(1, 2, HistoryEntry(conversation_id="c", ts=3, text="x")),
        {
            "type": "get_history_entry_response",
            "offset": 1,
            "log_id": 2,
            "entry": {"conversation_id": "c", "ts": 3, "text": "x"},
        },
    ),
    (
        notices.HistoryEntryFound(1, 2),
        {"type": "get_history_entry_response", "offset": 1, "log_id": 2},
    ),
    (
        notices.CustomPromptsListed((CustomPrompt(name="n", path="/p", content="c"),)),
        {
            "type": "list_custom_prompts_response",
            "custom_prompts": [
                {"name": "n", "path": "/p", "content": "c", "description": None, "argument_hint": None}
            ],
        },
    ),
    (
        notices.McpToolsListed(
            tools={},
            resources={"s": ()},
            resource_templates={"s": ()},
            auth_statuses={"s": McpAuthStatus.BEARER_TOKEN},
        ),
        {
            "type": "mcp_list_tools_response",
            "tools": {},
            "resources": {"s": []},
            "resource_templates": {"s": []},
            "auth_statuses": {"s": "bearer_token"},
        },
    ),
]

QUESTIONS: list[tuple[questions.ApprovalQuestion | questions.ElicitationQuestion, Json]] = [
    (
        questions.CommandApprovalQuestion(
            call_id="a", command=("ls",), cwd="/w", parsed=(UnknownCommand(cmd="ls"),), proposed_rule=("ls",)
        ),
        {
            "type": "exec_approval_request",
            "call_id": "a",
            "command": ["ls"],
            "cwd": "/w",
            "parsed_cmd": [{"type": "unknown", "cmd": "ls"}],
        },
    ),
    (
        questions.CommandApprovalQuestion(call_id="a", command=(), cwd="/w", parsed=(), reason="why"),
        {
            "type": "exec_approval_request",
            "call_id": "a",
            "command": [],
            "cwd": "/w",
            "reason": "why",
            "parsed_cmd": [],
        },
    ),
    (
        questions.PatchApprovalQuestion(call_id="a", changes={"/w/x": AddFileChange(content="y")}),
        {
            "type": "apply_patch_approval_request",
            "call_id": "a",
            "changes": {"/w/x": {"add": {"content": "y"}}},
        },
    ),
    (
        questions.ElicitationQuestion(server="s", id="1", message="m", requested_schema={"type": "object"}),
        {
            "type": "elicitation_request",
            "server_name": "s",
            "id": "1",
            "message": "m",
            "requested_schema": {"type": "object"},
        },
    ),
]


@pytest.mark.parametrize(("notice", "expected"), NOTICES)
def test_a_notice_is_one_legacy_event(notice: notices.Notice, expected: Json) -> None:
    assert legacy_event(notice).to_value() == expected


@pytest.mark.parametrize(("question", "expected"), QUESTIONS)
def test_a_question_is_announced_by_one_legacy_event(
    question: questions.ApprovalQuestion | questions.ElicitationQuestion, expected: Json
) -> None:
    assert legacy_event(question).to_value() == expected


def test_every_kind_is_covered() -> None:
    assert {type(notice) for notice, _ in NOTICES} == set(get_args(notices.Notice))
    without_event = {questions.ToolCallQuestion, questions.UserInputQuestion, questions.McpCallQuestion}
    assert {type(question) for question, _ in QUESTIONS} == set(get_args(questions.Question)) - without_event
