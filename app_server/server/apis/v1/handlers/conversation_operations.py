"""The extension that submits any operation. Operations are converted into commands of the engine."""

from __future__ import annotations

from app_server.engine.session import session_commands
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route_in
from app_server.server.apis.v1.handlers.conversations import conversation_of, settings, submit_input
from app_server_protocol.engine.thread_settings import SettingsPatch
from app_server_protocol.v1 import ops


async def submit(conversation: ConversationContext, params: ops.SubmitParams) -> ops.SubmitResponse:
    return ops.SubmitResponse(submission_id=await _submit(conversation, params.op))


async def _submit(  # noqa: C901 - one case for each operation
    conversation: ConversationContext, op: ops.Op
) -> str:
    """Execute the operation; return the id that its events carry. Raises BeyondClientRights."""
    session = conversation.session
    command: session_commands.BeginsNoTask | session_commands.ClientTask
    match op:
        case ops.UserInputOp():
            return await submit_input(conversation, op.items)
        case ops.UserTurnOp():
            return await submit_input(conversation, op.items, settings(op), op.final_output_json_schema)
        case ops.OverrideTurnContextOp():
            command = session_commands.ChangeSettings(session.facts.permitted(overriding(op)))
        case ops.InterruptOp():
            command = session_commands.Interrupt()
        case ops.ExecApprovalOp():
            command = session_commands.ResolveApproval(op.call_id or op.id, op.decision)
        case ops.PatchApprovalOp():
            command = session_commands.ResolveApproval(op.call_id or op.id, op.decision, tool="apply_patch")
        case ops.ResolveElicitationOp():
            command = session_commands.AnswerElicitation(
                op.server_name, op.request_id, op.decision, op.content
            )
        case ops.AddToHistoryOp():
            command = session_commands.AddToHistory(op.text)
        case ops.GetHistoryEntryRequestOp():
            command = session_commands.LookUpHistory(op.offset, op.log_id)
        case ops.ListMcpToolsOp():
            command = session_commands.ListTools()
        case ops.ListCustomPromptsOp():
            command = session_commands.ListPrompts()
        case ops.UndoOp():
            command = session_commands.Undo()
        case ops.CompactOp():
            command = session_commands.Compact()
        case ops.ReviewOp():
            command = session_commands.Review(op.review_request)
        case ops.RunUserShellCommandOp():
            command = session_commands.RunShell(op.command, confined=True)
        case ops.ShutdownOp():
            command = session_commands.Close()
    if isinstance(command, session_commands.ClientTask):
        return session.begin(command, conversation.turn_caller()).operation
    return session.do(command).operation


def overriding(op: ops.OverrideTurnContextOp) -> SettingsPatch:
    """Return the settings that the operation names; the effort may be named as null."""
    return settings(op, names_effort="effort" in op.model_fields_set)


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (route_in(ops.SUBMIT, submit, conversation_of(context)),)
