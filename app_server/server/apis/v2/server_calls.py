"""The question whether a tool of an MCP server may be called, as a request of the thread API, and the client's answer.
Pure.

Clients know two forms: a question of the server itself, with the call in its `_meta`, and a question of the model, for
clients that switch `features.tool_call_mcp_elicitation` off.
"""

from __future__ import annotations

from typing import Final

from app_server.engine.session.session_commands import ResolveUserInput
from app_server.server.conversations.adapter import (
    NO_FIELDS,
    OutboundRequest,
    QuestionKind,
    asked,
    decide_call,
    is_elicitation_answer,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.questions import McpCallDecision, McpCallQuestion
from app_server_protocol.v2 import question as wire

APPROVAL_KIND: Final = "mcp_tool_call"
"""Kind of this question, by which clients distinguish it from questions of the server itself."""

ALLOW: Final = "Allow"
ALLOW_FOR_SESSION: Final = "Allow for this session"
CANCEL: Final = "Cancel"

# Clients match the header and the labels, and show the descriptions.
HEADER: Final = "Approve app tool call?"
FOR_SESSION: Final = wire.ToolRequestUserInputOption(
    label=ALLOW_FOR_SESSION, description="Run the tool and remember this choice for this session."
)
OPTIONS: Final = (
    wire.ToolRequestUserInputOption(label=ALLOW, description="Run the tool and continue."),
    FOR_SESSION,
    wire.ToolRequestUserInputOption(label=CANCEL, description="Cancel this tool call."),
)


def call_question(
    thread_id: str, turn_id: str | None, asking: McpCallQuestion, item_id: str
) -> OutboundRequest:
    """Return the request to the client about the item."""
    if asking.as_inquiry:
        return _inquiry(thread_id, turn_id or "", asking, item_id)
    form = wire.FormElicitation.model_construct(
        thread_id=thread_id,
        turn_id=turn_id,
        server_name=asking.server,
        message=asking.message,
        requested_schema=NO_FIELDS,
        meta=_about(asking),
    )
    return asked(
        wire.MCP_SERVER_ELICITATION_REQUEST,
        wire.McpServerElicitationRequestParams.model_construct(form),
        lambda result: ResolveUserInput(asking.call_id, decide_call(result)),
        is_elicitation_answer,
    )


def _about(asking: McpCallQuestion) -> Json:
    about: dict[str, Json] = {
        "codex_approval_kind": APPROVAL_KIND,
        "tool_name": asking.tool,
        "tool_params": asking.arguments,
        "tool_params_display": [
            {"name": name, "value": value, "display_name": name} for name, value in _named(asking.arguments)
        ],
    }
    if asking.lasting:
        about["persist"] = [each.value for each in asking.lasting]
    if asking.description is not None:
        about["tool_description"] = asking.description
    if asking.annotations is not None:
        about["tool_annotations"] = asking.annotations
    return about


def _named(arguments: Json) -> list[tuple[str, Json]]:
    return list(arguments.items()) if isinstance(arguments, dict) else []


def _inquiry(thread_id: str, turn_id: str, asking: McpCallQuestion, item_id: str) -> OutboundRequest:
    id = f"mcp_tool_call_approval_{item_id}"
    options = OPTIONS if asking.lasting else tuple(each for each in OPTIONS if each is not FOR_SESSION)
    question = wire.ToolRequestUserInputQuestion(
        id=id, header=HEADER, question=asking.message, is_other=False, options=options
    )
    return asked(
        wire.ITEM_TOOL_REQUEST_USER_INPUT,
        wire.ToolRequestUserInputParams(
            thread_id=thread_id, turn_id=turn_id, item_id=item_id, questions=(question,), is_blocking=True
        ),
        lambda result: ResolveUserInput(asking.call_id, _chosen(result, id)),
        lambda result: isinstance(result, dict) and isinstance(result.get("answers"), dict),
        QuestionKind.INPUT,
    )


def _chosen(result: Json, id: str) -> McpCallDecision:
    """Return the decision for a label; any other answer cancels the call."""
    match result:
        case {"answers": {**given}}:
            choice = given.get(id)
        case _:
            return McpCallDecision.DECLINED
    match choice:
        case {"answers": ["Allow"]}:
            return McpCallDecision.ONCE
        case {"answers": ["Allow for this session"]}:
            return McpCallDecision.SESSION
        case _:
            return McpCallDecision.CANCELLED
