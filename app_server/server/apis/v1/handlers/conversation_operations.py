"""The extension that submits any operation. Operations are converted into commands of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app_server.engine.session import session_commands
from app_server.server.apis.api_services import ServerServices
from app_server.server.apis.router import Route, route
from app_server.server.apis.v1.handlers.conversations import settings, submit_input
from app_server_protocol.engine.thread_settings import SettingsPatch
from app_server_protocol.v1 import ops

if TYPE_CHECKING:
    from app_server.engine.client_context import ClientContext
    from app_server.engine.session.facade import SessionHandle


async def submit(services: ServerServices, params: ops.SubmitParams) -> ops.SubmitResponse:
    session = services.conversations.get(params.conversation_id).session
    id = await _submit(session, services.client.caller, params.op)
    return ops.SubmitResponse(submission_id=id)


async def _submit(  # noqa: C901 - one case for each operation
    session: SessionHandle, caller: ClientContext, op: ops.Op
) -> str:
    """Execute the operation; return the id that its events carry. Raises BeyondClientRights."""
    command: session_commands.Command
    match op:
        case ops.UserInputOp():
            return await submit_input(session, caller, op.items)
        case ops.UserTurnOp():
            return await submit_input(session, caller, op.items, settings(op), op.final_output_json_schema)
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
    return session.do(command, caller).operation


def overriding(op: ops.OverrideTurnContextOp) -> SettingsPatch:
    """Return the settings that the operation names; the effort may be named as null."""
    return settings(op, names_effort="effort" in op.model_fields_set)


def routes(services: ServerServices) -> tuple[Route, ...]:
    return (route(ops.SUBMIT, submit, services),)
