"""User messages, interrupts, and the extension that submits any operation: parameters become commands of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, assert_never

from app_server.apis.services import ServerServices
from app_server.core.config.fence import check_permissions
from app_server.core.session import commands
from protocol.engine.settings import UNCHANGED, UNSET, SettingsChange, or_unset
from protocol.events.turn import TurnAbortReason
from protocol.items import ImageInput, LocalImageInput, TextInput, UserInput
from protocol.structs import Json
from protocol.v1 import ops
from protocol.v1 import turn as wire

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle

TURNS: Final = commands.TurnWishes(
    names_turn=False,
    skills=False,
    goals=False,
    compacts_at_begin=False,
    relative_diff=False,
    sends_chosen_effort=False,
    checks_pictures=False,
)
"""Turns are as codex 0.58 has them, whose clients know no turns by their ids."""


async def send_user_message(
    services: ServerServices, params: wire.SendUserMessageParams
) -> wire.SendUserMessageResponse:
    session = services.conversations.get(params.conversation_id).session
    await _say(session, [_input(item) for item in params.items])
    return wire.SendUserMessageResponse()


async def send_user_turn(
    services: ServerServices, params: wire.SendUserTurnParams
) -> wire.SendUserTurnResponse:
    session = services.conversations.get(params.conversation_id).session
    await _say(session, [_input(item) for item in params.items], settings(params))
    return wire.SendUserTurnResponse()


async def interrupt_conversation(
    services: ServerServices, params: wire.InterruptConversationParams
) -> wire.InterruptConversationResponse:
    """Responds once what runs has ended; at once where nothing does."""
    session = services.conversations.get(params.conversation_id).session
    session.do(commands.Interrupt())
    await session.settled()
    return wire.InterruptConversationResponse(abort_reason=TurnAbortReason.INTERRUPTED)


async def submit(services: ServerServices, params: wire.SubmitParams) -> wire.SubmitResponse:
    session = services.conversations.get(params.conversation_id).session
    return wire.SubmitResponse(submission_id=await _submit(session, params.op))


async def _submit(session: SessionHandle, op: ops.Op) -> str:  # noqa: C901 - one case for each operation
    """Do what the operation says; returns the id that its events carry. Raises BeyondClientRights."""
    command: commands.Command
    match op:
        case ops.UserInputOp():
            return await _say(session, op.items)
        case ops.UserTurnOp():
            return await _say(session, op.items, settings(op), op.final_output_json_schema)
        case ops.OverrideTurnContextOp():
            command = commands.ChangeSettings(_permitted(session, settings(op)))
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
        case _:
            assert_never(op)
    return session.do(command).operation


async def _say(
    session: SessionHandle,
    items: Sequence[UserInput],
    change: SettingsChange | None = None,
    output_schema: Json = None,
) -> str:
    """Begin a turn, or add to the one that runs; returns the id that its events carry. Raises BeyondClientRights."""
    permitted = UNCHANGED if change is None else _permitted(session, change)
    words = await session.words(items, wishes=TURNS) if items else None
    return session.start_turn(words, permitted, output_schema, TURNS).operation


def _input(item: wire.InputItem) -> UserInput:
    match item:
        case wire.TextInputItem():
            return TextInput(text=item.data.text)
        case wire.ImageInputItem():
            return ImageInput(image_url=item.data.image_url)
        case wire.LocalImageInputItem():
            return LocalImageInput(path=item.data.path)
        case _:
            assert_never(item)


def settings(given: ops.UserTurnOp | ops.OverrideTurnContextOp | wire.SendUserTurnParams) -> SettingsChange:
    """Return the settings that are given; a turn always says which effort it wants, an override where it names one,
    also null.
    """
    names_effort = not isinstance(given, ops.OverrideTurnContextOp) or "effort" in given.model_fields_set
    return SettingsChange(
        cwd=or_unset(given.cwd),
        approval_policy=or_unset(given.approval_policy),
        sandbox_policy=or_unset(given.sandbox_policy),
        model=or_unset(given.model),
        effort=given.effort if names_effort else UNSET,
        summary=or_unset(given.summary),
    )


def _permitted(session: SessionHandle, change: SettingsChange) -> SettingsChange:
    """Return the change. Raises BeyondClientRights where it gives more than the user leaves to clients."""
    after = session.facts.settings.changed(change)
    check_permissions(session.facts.config.fence, after, after.cwd)
    return change
