"""Operations of the wire as commands of the engine, and what turns of this API do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, assert_never

from app_server.core.config.fence import check_permissions
from app_server.core.session.commands import (
    AddToHistory,
    AnswerElicitation,
    ChangeSettings,
    Close,
    Command,
    Compact,
    Decide,
    Interrupt,
    ListPrompts,
    ListTools,
    LookUpHistory,
    Review,
    RunShell,
    TurnWishes,
    Undo,
)
from app_server.core.turn.settings import UNCHANGED, UNSET, SettingsChange, or_unset
from protocol.base import Json
from protocol.items import UserInput
from protocol.v1.ops import (
    AddToHistoryOp,
    CompactOp,
    ExecApprovalOp,
    GetHistoryEntryRequestOp,
    InterruptOp,
    ListCustomPromptsOp,
    ListMcpToolsOp,
    Op,
    OverrideTurnContextOp,
    PatchApprovalOp,
    ResolveElicitationOp,
    ReviewOp,
    RunUserShellCommandOp,
    ShutdownOp,
    UndoOp,
    UserInputOp,
    UserTurnOp,
)
from protocol.v1.turn import SendUserTurnParams

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle

TURNS: Final = TurnWishes(
    names_turn=False,
    skills=False,
    goals=False,
    compacts_at_begin=False,
    relative_diff=False,
    sends_chosen_effort=False,
    checks_pictures=False,
)
"""Turns are as codex 0.58 has them, whose clients know no turns by their ids."""


async def submit(session: SessionHandle, op: Op) -> str:
    """Do what the operation says; returns the id that its events carry. Raises BeyondClientRights."""
    match op:
        case UserInputOp():
            return await say(session, op.items)
        case UserTurnOp():
            return await say(session, op.items, settings(op), op.final_output_json_schema)
        case OverrideTurnContextOp():
            change = settings(op)
            _check_rights(session, change)
            return session.do(ChangeSettings(change)).operation
        case _:
            return session.do(_command(op)).operation


async def say(
    session: SessionHandle,
    items: Sequence[UserInput],
    change: SettingsChange | None = None,
    output_schema: Json = None,
) -> str:
    """Begin a turn, or add to the one that runs; returns the id that its events carry. Raises BeyondClientRights."""
    if change is not None:
        _check_rights(session, change)
    words = await session.words(items, wishes=TURNS) if items else None
    return session.start_turn(words, change or UNCHANGED, output_schema, TURNS).operation


def settings(given: UserTurnOp | OverrideTurnContextOp | SendUserTurnParams) -> SettingsChange:
    """Return the settings that are given; a turn always says which effort it wants, an override where it names one,
    also null.
    """
    names_effort = not isinstance(given, OverrideTurnContextOp) or "effort" in given.model_fields_set
    return SettingsChange(
        cwd=or_unset(given.cwd),
        approval_policy=or_unset(given.approval_policy),
        sandbox_policy=or_unset(given.sandbox_policy),
        model=or_unset(given.model),
        effort=given.effort if names_effort else UNSET,
        summary=or_unset(given.summary),
    )


def _check_rights(session: SessionHandle, change: SettingsChange) -> None:
    """Raise BeyondClientRights where the settings give more than the user leaves to clients."""
    after = session.facts.settings.changed(change)
    check_permissions(session.facts.config.fence, after, after.cwd)


CommandOp = (
    InterruptOp
    | ExecApprovalOp
    | PatchApprovalOp
    | ResolveElicitationOp
    | AddToHistoryOp
    | GetHistoryEntryRequestOp
    | ListMcpToolsOp
    | ListCustomPromptsOp
    | UndoOp
    | CompactOp
    | ReviewOp
    | RunUserShellCommandOp
    | ShutdownOp
)


def _command(op: CommandOp) -> Command:  # noqa: C901 - one case for each
    match op:
        case InterruptOp():
            return Interrupt()
        case ExecApprovalOp():
            return Decide(op.call_id or op.id, op.decision)
        case PatchApprovalOp():
            return Decide(op.call_id or op.id, op.decision, tool="apply_patch")
        case ResolveElicitationOp():
            return AnswerElicitation(op.server_name, op.request_id, op.decision, op.content)
        case AddToHistoryOp():
            return AddToHistory(op.text)
        case GetHistoryEntryRequestOp():
            return LookUpHistory(op.offset, op.log_id)
        case ListMcpToolsOp():
            return ListTools()
        case ListCustomPromptsOp():
            return ListPrompts()
        case UndoOp():
            return Undo()
        case CompactOp():
            return Compact()
        case ReviewOp():
            return Review(op.review_request)
        case RunUserShellCommandOp():
            return RunShell(op.command, confined=True)
        case ShutdownOp():
            return Close()
        case _:
            assert_never(op)
