"""Questions of the engine as requests of the thread API, and the client's answers as commands. Pure.

Yes is what this API's own words say, and only what was offered: everything else is a no. An answer of another
shape to the question of a tool is none: the tool fails, the question was not answered.
"""

from __future__ import annotations

from typing import Final, assert_never

from app_server.apis.answers import answer_elicitation, decide
from app_server.apis.v2.items import command_actions, command_line
from app_server.conversations.adapter import ClientQuestion, QuestionKind
from app_server.core.session.commands import Answer, Command
from protocol.engine import questions as engine
from protocol.engine.events import Question, SessionEvent
from protocol.engine.items import CommandExecution, CommandSource, Item
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from protocol.events.tools import ElicitationRequestEvent
from protocol.policy import ReviewDecision
from protocol.responses import InputImage, InputText
from protocol.structs import Json, Written
from protocol.table import AnyServerRequest
from protocol.v2 import approval
from protocol.v2 import question as wire

INVALID: Final = "dynamic tool response was invalid"


def tool_call_params(
    thread_id: str, turn_id: str, call: engine.ToolCallQuestion
) -> wire.DynamicToolCallParams:
    return wire.DynamicToolCallParams(
        thread_id=thread_id,
        turn_id=turn_id,
        call_id=call.call_id,
        namespace=call.namespace,
        tool=call.tool,
        arguments=call.arguments,
    )


def user_input_params(
    thread_id: str, turn_id: str, asked: engine.UserInputQuestion
) -> wire.ToolRequestUserInputParams:
    """Return the questions; another answer than the ones to choose from may always be given."""
    questions = tuple(
        wire.ToolRequestUserInputQuestion(
            id=each.id,
            header=each.header,
            question=each.text,
            is_other=True,
            options=tuple(
                wire.ToolRequestUserInputOption(label=choice.label, description=choice.description)
                for choice in each.choices
            ),
        )
        for each in asked.inquiries
    )
    return wire.ToolRequestUserInputParams(
        thread_id=thread_id,
        turn_id=turn_id,
        item_id=asked.call_id,
        questions=questions,
        is_blocking=True,
    )


def tool_call_answer(result: Json) -> engine.ToolCallAnswer | None:
    """Read the answer of a tool; None for an error. Parts that are not understood make the whole answer invalid."""
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


OFFERED: Final = tuple(approval.FileChangeApprovalDecision)

_DECISIONS: Final = {
    approval.FileChangeApprovalDecision.ACCEPT: ReviewDecision.APPROVED,
    approval.FileChangeApprovalDecision.ACCEPT_FOR_SESSION: ReviewDecision.APPROVED_FOR_SESSION,
    approval.FileChangeApprovalDecision.DECLINE: ReviewDecision.DENIED,
    approval.FileChangeApprovalDecision.CANCEL: ReviewDecision.ABORT,
}
_NO_FIELDS: Final[Json] = {"type": "object", "properties": {}}


def question(thread_id: str, event: SessionEvent, item: Item | None, now_ms: int) -> ClientQuestion | None:
    """Return what the client is asked; None for an event that asks nothing. `item` is the one that the question is
    about, under the id that the client knows.
    """
    asking = event.event
    if not isinstance(asking, Question):
        return None
    row, params = _request(thread_id, event.turn_id, asking, item, now_ms)

    def to_command(result: Json) -> Command:
        return _command(asking, result)

    return ClientQuestion(row.method, params.to_json(), to_command, _kind(asking))


def _kind(event: Question) -> QuestionKind:
    match event:
        case engine.ToolCallQuestion():
            return QuestionKind.CALL
        case engine.UserInputQuestion():
            return QuestionKind.INPUT
        case _:
            return QuestionKind.APPROVAL


def decision(result: Json) -> ReviewDecision:
    """Parse the client's decision; an invalid one, or None for an error, is a denial."""
    parsed = approval.parse_decision(result)
    return (
        _DECISIONS[parsed]
        if isinstance(parsed, approval.FileChangeApprovalDecision)
        else ReviewDecision.DENIED
    )


def accepted_rule(result: Json) -> engine.KeepRule | None:
    """Return the rule for which the client says yes for good. The engine keeps none but the one that it proposed."""
    parsed = approval.parse_decision(result)
    if not isinstance(parsed, approval.AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision):
        return None
    return engine.KeepRule(parsed.accept_with_execpolicy_amendment.execpolicy_amendment)


def _offered(proposed: tuple[str, ...] | None) -> tuple[approval.CommandExecutionApprovalDecision, ...]:
    """Return everything that is taken as an answer, and nothing else."""
    if proposed is None:
        return OFFERED
    amendment = approval.ExecpolicyAmendment(execpolicy_amendment=proposed)
    rule = approval.AcceptWithExecpolicyAmendmentCommandExecutionApprovalDecision(
        accept_with_execpolicy_amendment=amendment
    )
    yes, for_session, *no = OFFERED
    return (yes, for_session, rule, *no)


def _request(
    thread_id: str, turn_id: str | None, event: Question, item: Item | None, now_ms: int
) -> tuple[AnyServerRequest, Written]:
    match event:
        case ExecApprovalRequestEvent():
            typed = _is_typed(event, item)
            return (
                approval.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL,
                approval.CommandExecutionRequestApprovalParams(
                    kind="writeStdin" if typed else "command",
                    thread_id=thread_id,
                    turn_id=turn_id or "",
                    item_id=event.call_id if item is None else item.id,
                    started_at_ms=now_ms,
                    reason=event.reason,
                    command="".join(event.command) if typed else command_line(event.command),
                    cwd=event.cwd,
                    command_actions=command_actions(event.parsed_cmd, event.command, event.cwd),
                    proposed_execpolicy_amendment=event.proposed_rule,
                    available_decisions=_offered(event.proposed_rule),
                ),
            )
        case ApplyPatchApprovalRequestEvent():
            return approval.ITEM_FILE_CHANGE_REQUEST_APPROVAL, approval.FileChangeRequestApprovalParams(
                thread_id=thread_id,
                turn_id=turn_id or "",
                item_id=event.call_id if item is None else item.id,
                started_at_ms=now_ms,
                reason=event.reason,
                grant_root=event.grant_root,
            )
        case ElicitationRequestEvent():
            form = wire.FormElicitation.model_construct(
                thread_id=thread_id,
                turn_id=turn_id,
                server_name=event.server_name,
                message=event.message,
                requested_schema=_NO_FIELDS if event.requested_schema is None else event.requested_schema,
                meta=event.meta,
            )
            return (
                wire.MCP_SERVER_ELICITATION_REQUEST,
                wire.McpServerElicitationRequestParams.model_construct(form),
            )
        case engine.ToolCallQuestion():
            return wire.ITEM_TOOL_CALL, tool_call_params(thread_id, turn_id or "", event)
        case engine.UserInputQuestion():
            return wire.ITEM_TOOL_REQUEST_USER_INPUT, user_input_params(thread_id, turn_id or "", event)
        case _:
            assert_never(event)


def _is_typed(event: ExecApprovalRequestEvent, item: Item | None) -> bool:
    """Tell whether the question is about text for a command that goes on, and not about the command."""
    return (
        isinstance(item, CommandExecution)
        and item.source is CommandSource.TERMINAL
        and item.command != event.command
    )


def _command(event: Question, result: Json) -> Command:
    match event:
        case ExecApprovalRequestEvent(proposed_rule=(_, *_)) if (rule := accepted_rule(result)) is not None:
            return decide(event, ReviewDecision.APPROVED, rule)
        case ExecApprovalRequestEvent():
            return decide(event, decision(result))
        case ApplyPatchApprovalRequestEvent():
            decided = decision(result)
            for_session = decided is ReviewDecision.APPROVED_FOR_SESSION
            return decide(event, decided, engine.AllowFiles() if for_session else None)
        case ElicitationRequestEvent():
            return answer_elicitation(event, result)
        case engine.ToolCallQuestion(call_id=call_id):
            return Answer(call_id, tool_call_answer(result))
        case engine.UserInputQuestion(call_id=call_id):
            return Answer(call_id, user_input_answer(result))
        case _:
            assert_never(event)
