"""Questions and hooks: `PermissionRequest` hooks answer questions that the user would be asked. Other hooks want
questions asked that no tool has, to which the user says yes or no; where no client can be asked so, the answer is no.
"""

from __future__ import annotations

from collections.abc import Callable

from app_server.engine.approvals.shell.quote import join
from app_server.engine.hooks import hook_input
from app_server.engine.hooks.hook_output import Verdict
from app_server.engine.tools.tool_base import ApprovalServices, HookedCall, ToolContext, ToolFailure
from app_server_protocol.engine.events import EngineEvent
from app_server_protocol.engine.hook_events import HookEvent
from app_server_protocol.engine.questions import (
    Choice,
    CommandApprovalQuestion,
    Question,
    UserInputAnswer,
    UserInputQuestion,
    UserQuestion,
)
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import AskForApproval


class HookDenied(ToolFailure):
    """Hooks answered a question with no."""

    is_denial = True


async def is_approved(call_id: str, question: Question, turn: ToolContext) -> bool:
    """Return whether hooks answer a question with yes; if not, the user has to be asked. Raises HookDenied."""
    hooks = turn.hooks
    if not hooks.has(HookEvent.PERMISSION_REQUEST):
        return False
    hooked = turn.hooked.get(call_id) or _of_question(call_id, question)
    reason = getattr(question, "reason", None)
    own = hook_input.permission_request(hooked.name, hooked.input, call_id, reason)
    decision = await hooks.run(HookEvent.PERMISSION_REQUEST, own, *hooked.names, call_id=call_id)
    if decision.verdict is Verdict.DENY or hooks.stop is not None:
        raise HookDenied(f"blocked by PermissionRequest hook: {decision.reason or hooks.stop}")
    return decision.verdict is Verdict.ALLOW


def _of_question(call_id: str, question: Question) -> HookedCall:
    """Return the subject of a question about no running call: text that is typed into an open terminal."""
    if isinstance(question, CommandApprovalQuestion):
        return HookedCall("Bash", ("Bash",), {"command": join(question.command)}, call_id)
    return HookedCall("", ("",), {}, call_id)


YES, NO = "Yes", "No"


def may_ask(settings: ThreadSettings) -> bool:
    """Return whether the user may be asked because of a hook. Such a question is one of a rule of the user."""
    if settings.approval_policy is AskForApproval.NEVER:
        return False
    return settings.granular is None or settings.granular.rules


async def asked_user(
    approvals: ApprovalServices, id: str, header: str, text: str, emit: Callable[[EngineEvent], None]
) -> bool:
    """Ask the user; return whether the answer is yes."""
    choices = (Choice(YES, "Do it this once."), Choice(NO, "Leave it."))
    question = UserInputQuestion(id, (UserQuestion(id=id, header=header, text=text, choices=choices),))
    answer = await approvals.questions.ask(id, lambda: emit(question))
    await approvals.flush()
    return isinstance(answer, UserInputAnswer) and tuple(answer.answers.get(id, ())) == (YES,)
