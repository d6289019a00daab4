"""Conversion of questions of the engine into requests of the thread API, and of the client's answers into commands.
Pure.

An approval is one of this API's own words, and one that was offered: every other answer is a denial. An answer of an
invalid shape to the question of a tool counts as none: the tool fails, because its question was not answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from app_server.engine.session.session_commands import ResolveApproval, ResolveUserInput
from app_server.server.apis.v2.server_calls import call_question
from app_server.server.apis.v2.thread_items import command_actions, command_line
from app_server.server.conversations.adapter import (
    NO_FIELDS,
    OutboundRequest,
    QuestionKind,
    answer_elicitation,
    asked,
    decide,
    is_elicitation_answer,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine import questions as engine
from app_server_protocol.engine.items import CommandExecution, CommandSource, Item
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    PatchApprovalQuestion,
    Question,
)
from app_server_protocol.outgoing import struct_from
from app_server_protocol.policy import ReviewDecision
from app_server_protocol.responses import InputImage, InputText
from app_server_protocol.v2 import question as wire

INVALID: Final = "dynamic tool response was invalid"


def tool_call_answer(result: Json) -> engine.ToolCallAnswer | None:
    """Parse the answer of a tool; None if it is an error. Parts that are not understood make the whole
    answer invalid.
    """
    if result is None:
        return None
    match result:
        case {"success": bool(success), "contentItems": [*items]}:
            parts = [_part(item) for item in items]
            if None not in parts:
                return engine.ToolCallAnswer(success, tuple(part for part in parts if part is not None))
        case _:
            pass
    return engine.ToolCallAnswer(False, (InputText(text=INVALID),))


def user_input_answer(result: Json) -> engine.UserInputAnswer | None:
    match result:
        case {"answers": dict(given)}:
            answers = {id: _texts(answer) for id, answer in given.items()}
            return engine.UserInputAnswer({id: texts for id, texts in answers.items() if texts is not None})
        case _:
            return None


def _part(item: Json) -> InputText | InputImage | None:
    match item:
        case {"type": "inputText", "text": str(text)}:
            return InputText(text=text)
        case {"type": "inputImage", "imageUrl": str(url)}:
            return InputImage(image_url=url)
        case {"type": "inputAudio", "audioUrl": str()}:
            return InputText(text="[a sound was left out: the model takes none]")
        case _:
            return None


def _texts(answer: Json) -> tuple[str, ...] | None:
    match answer:
        case {"answers": [*texts]} if all(isinstance(text, str) for text in texts):
            return tuple(texts)
        case _:
            return None


OFFERED: Final = tuple(wire.FileChangeApprovalDecision)

_DECISIONS: Final = {
    "accept": ReviewDecision.APPROVED,
    "acceptForSession": ReviewDecision.APPROVED_FOR_SESSION,
    "decline": ReviewDecision.DENIED,
    "cancel": ReviewDecision.ABORT,
    "denied": ReviewDecision.DENIED,
    "abort": ReviewDecision.ABORT,
}
"""Decisions by the words of clients. The conversation API's words for a denial are understood, its words for an
approval are not.
"""


def question(
    thread_id: str, turn_id: str | None, asking: Question, item: Item | None, now_ms: int
) -> OutboundRequest:
    """Return the request to the client for a question. `item` is the item that the question is about, with the id that
    the client knows.
    """
    at: dict[str, Json] = {"thread_id": thread_id, "turn_id": turn_id or ""}
    match asking:
        case CommandApprovalQuestion():
            command = _about_command(asking, item, now_ms, at)
            row = wire.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL
            return asked(row, command, partial(_decided_command, asking), _is_decision)
        case PatchApprovalQuestion():
            patch = wire.FileChangeRequestApprovalParams(
                **at,
                item_id=asking.call_id if item is None else item.id,
                started_at_ms=now_ms,
                reason=asking.reason,
            )
            decided = partial(_decided_patch, asking)
            return asked(wire.ITEM_FILE_CHANGE_REQUEST_APPROVAL, patch, decided, _is_decision)
        case ElicitationQuestion():
            form = wire.FormElicitation.model_construct(
                thread_id=thread_id,
                turn_id=turn_id,
                server_name=asking.server,
                message=asking.message,
                requested_schema=NO_FIELDS if asking.requested_schema is None else asking.requested_schema,
            )
            elicitation = wire.McpServerElicitationRequestParams.model_construct(form)
            answer = partial(answer_elicitation, asking)
            return asked(wire.MCP_SERVER_ELICITATION_REQUEST, elicitation, answer, is_elicitation_answer)
        case engine.McpCallQuestion():
            return call_question(thread_id, turn_id, asking, asking.call_id if item is None else item.id)
        case engine.ToolCallQuestion(call_id=id):
            call = struct_from(wire.DynamicToolCallParams, asking, **at)
            return asked(
                wire.ITEM_TOOL_CALL,
                call,
                lambda result: ResolveUserInput(id, tool_call_answer(result)),
                lambda result: True,  # no other client is asked
                QuestionKind.CALL,
            )
        case engine.UserInputQuestion(call_id=id):
            questions = wire.ToolRequestUserInputParams(
                **at, item_id=id, questions=tuple(map(_inquiry, asking.inquiries)), is_blocking=True
            )
            return asked(
                wire.ITEM_TOOL_REQUEST_USER_INPUT,
                questions,
                lambda result: ResolveUserInput(id, user_input_answer(result)),
                lambda result: user_input_answer(result) is not None,
                QuestionKind.INPUT,
            )


def _about_command(
    event: CommandApprovalQuestion, item: Item | None, now_ms: int, at: Mapping[str, Json]
) -> wire.CommandExecutionRequestApprovalParams:
    typed = _is_typed(event, item)
    return wire.CommandExecutionRequestApprovalParams(
        **at,
        kind="writeStdin" if typed else "command",
        item_id=event.call_id if item is None else item.id,
        started_at_ms=now_ms,
        reason=event.reason,
        command="".join(event.command) if typed else command_line(event.command),
        cwd=event.cwd,
        command_actions=command_actions(event.parsed, event.command, event.cwd),
        proposed_execpolicy_amendment=event.proposed_rule,
        available_decisions=_offered(event.proposed_rule),
    )


def _inquiry(asked: engine.UserQuestion) -> wire.ToolRequestUserInputQuestion:
    """Return a question of a tool; the user may always give another answer than the offered ones."""
    return wire.ToolRequestUserInputQuestion(
        id=asked.id,
        header=asked.header,
        question=asked.text,
        is_other=True,
        options=tuple(struct_from(wire.ToolRequestUserInputOption, choice) for choice in asked.choices),
    )


def decision(result: Json) -> ReviewDecision | engine.RuleAmendment | None:
    """Return the decision in a client's answer, or the rule that it approves permanently; None if there is neither in
    the right place. The engine stores no rule but the one that it proposed.
    """
    match result:
        case {"decision": str(word)}:
            return _DECISIONS.get(word)
        case {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": [*words]}, **rest}} if (
            words and not rest and all(isinstance(word, str) for word in words)
        ):
            return engine.RuleAmendment(tuple(words))
        case _:
            return None


def _is_decision(result: Json) -> bool:
    return decision(result) is not None


def _offered(proposed: tuple[str, ...] | None) -> tuple[wire.CommandExecutionApprovalDecision, ...]:
    """Return all decisions that are accepted as an answer, and no others."""
    if proposed is None:
        return OFFERED
    amendment = wire.ExecpolicyAmendment(execpolicy_amendment=proposed)
    rule = wire.AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision(
        accept_with_execpolicy_amendment=amendment
    )
    yes, for_session, *no = OFFERED
    return (yes, for_session, rule, *no)


def _is_typed(event: CommandApprovalQuestion, item: Item | None) -> bool:
    """Return whether the question is about text for a command that goes on, and not about the command."""
    return (
        isinstance(item, CommandExecution)
        and item.source is CommandSource.TERMINAL
        and item.command != event.command
    )


def _decided_command(event: CommandApprovalQuestion, result: Json) -> ResolveApproval:
    match decision(result):
        case engine.RuleAmendment() as rule if event.proposed_rule:
            return decide(event, ReviewDecision.APPROVED, rule)
        case ReviewDecision() as decided:
            return decide(event, decided)
        case _:
            return decide(event, ReviewDecision.DENIED)


def _decided_patch(event: PatchApprovalQuestion, result: Json) -> ResolveApproval:
    match decision(result):
        case ReviewDecision.APPROVED_FOR_SESSION as decided:
            return decide(event, decided, engine.FileGrant())
        case ReviewDecision() as decided:
            return decide(event, decided)
        case _:
            return decide(event, ReviewDecision.DENIED)
