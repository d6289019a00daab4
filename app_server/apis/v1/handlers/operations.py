"""The extension that submits any operation. Operations are converted into commands of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app_server.apis.router import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v1.handlers.conversations import say, settings
from app_server.core.session import commands
from app_server_protocol.engine.session_settings import SettingsChange
from app_server_protocol.v1 import ops

if TYPE_CHECKING:
    from app_server.core.caller import Caller
    from app_server.core.session.handle import SessionHandle


async def submit(services: ServerServices, params: ops.SubmitParams) -> ops.SubmitResponse:
    session = services.conversations.get(params.conversation_id).session
    id = await _submit(session, services.client.caller, params.op)
    return ops.SubmitResponse(submission_id=id)


async def _submit(  # noqa: C901 - one case for each operation
    session: SessionHandle, caller: Caller, op: ops.Op
) -> str:
    """Execute the operation; return the id that its events carry. Raises BeyondClientRights."""
    command: commands.Command
    match op:
        case ops.UserInputOp():
            return await say(session, caller, op.items)
        case ops.UserTurnOp():
            return await say(session, caller, op.items, settings(op), op.final_output_json_schema)
        case ops.OverrideTurnContextOp():
            command = commands.ChangeSettings(session.facts.permitted(overriding(op)))
        case ops.InterruptOp():
            command = commands.Interrupt()
        case ops.ExecApprovalOp():
            command = commands.Decide(op.call_id or op.id, op.decision)
        case ops.PatchApprovalOp():
            command = commands.Decide(op.call_id or op.id, op.decision, tool="apply_patch")
        case ops.ResolveElicitationOp():
            command = commands.AnswerElicitation(op.server_name, op.request_id, op.decision, op.content)
        case ops.AddToHistoryOp():
            command = commands.AddToHistory(op.text)
        case ops.GetHistoryEntryRequestOp():
            command = commands.LookUpHistory(op.offset, op.log_id)
        case ops.ListMcpToolsOp():
            command = commands.ListTools()
        case ops.ListCustomPromptsOp():
            command = commands.ListPrompts()
        case ops.UndoOp():
            command = commands.Undo()
        case ops.CompactOp():
            command = commands.Compact()
        case ops.ReviewOp():
            command = commands.Review(op.review_request)
        case ops.RunUserShellCommandOp():
            command = commands.RunShell(op.command, confined=True)
        case ops.ShutdownOp():
            command = commands.Close()
    return session.do(command, caller).operation


def overriding(op: ops.OverrideTurnContextOp) -> SettingsChange:
    """Return the settings that the operation names; the effort may be named as null."""
    return settings(op, names_effort="effort" in op.model_fields_set)


def routes(services: ServerServices) -> tuple[Route, ...]:
    return (route(ops.SUBMIT, submit, services),)
