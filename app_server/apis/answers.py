"""Questions to clients, and their answers as commands, as far as all APIs have them in common. Pure.

Which words are a yes is for each API to say. What is no answer at all declines.
"""

from __future__ import annotations

from collections.abc import Callable

from app_server.conversations.adapter import ClientQuestion, QuestionKind
from app_server.core.session.commands import AnswerElicitation, Command, Decide
from protocol.engine.questions import AllowFiles, KeepRule
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from protocol.events.tools import ElicitationRequestEvent
from protocol.policy import ElicitationAction, ReviewDecision
from protocol.structs import Json, Written
from protocol.table import AnyServerRequest


def asked(
    row: AnyServerRequest,
    params: Written,
    to_command: Callable[[Json], Command],
    is_answer: Callable[[Json], bool],
    kind: QuestionKind = QuestionKind.APPROVAL,
) -> ClientQuestion:
    """Return a question as the request of that row."""
    return ClientQuestion(row.method, params.to_json(), to_command, is_answer, kind)


def decide(
    event: ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent,
    decision: ReviewDecision,
    also: KeepRule | AllowFiles | None = None,
) -> Decide:
    is_patch = isinstance(event, ApplyPatchApprovalRequestEvent)
    return Decide(event.call_id, decision, also, "apply_patch" if is_patch else "shell")


def is_elicitation_answer(result: Json) -> bool:
    """Tell whether a result says in the words of MCP what becomes of a question."""
    match result:
        case {"action": "accept" | "cancel" | "decline"}:
            return True
        case _:
            return False


def answer_elicitation(event: ElicitationRequestEvent, result: Json) -> AnswerElicitation:
    """Read an answer in the words of MCP, which all APIs use."""
    action, content = ElicitationAction.DECLINE, None
    match result:
        case {"action": "accept", **rest}:
            action, content = ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            action = ElicitationAction.CANCEL
        case _:
            pass
    return AnswerElicitation(event.server_name, event.id, action, content)
