"""What each operation means. Settings and answers take effect at once; what takes time becomes a task or goes on
in the background, so that an interrupt is never behind something slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Protocol, assert_never

from app_server.core.context.compaction import message_text
from app_server.core.context.environment import difference
from app_server.core.session import queries
from app_server.core.session.compaction import CompactTask
from app_server.core.session.regular import RegularTask
from app_server.core.session.review import ReviewTask
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask, Joins, NothingToDo, SessionTask
from app_server.core.session.undo import UndoTask
from app_server.core.session.user_input import as_message
from app_server.core.session.user_shell import UserShellTask
from app_server.core.turn.settings import UNSET, SettingsChange, Turn, or_unset
from app_server.core.turn.transcript import StoredTranscript
from protocol.events.turn import TurnAbortReason
from protocol.ops import (
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
    Submission,
    UndoOp,
    UserInputOp,
    UserTurnOp,
)
from protocol.policy import ReviewDecision
from protocol.responses import MessageItem

log = logging.getLogger(__name__)


class Actor(Protocol):
    """The session, as far as operations need it."""

    services: Services
    state: SessionState

    @property
    def active(self) -> ActiveTask | None: ...

    async def interrupt(self, reason: TurnAbortReason = ...) -> None: ...

    async def start(self, id: str, task: SessionTask, joins: Joins = ...) -> None: ...

    def background(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None: ...


async def perform(actor: Actor, id: str, op: Op) -> None:
    """Carry it out, or begin to. Raises CoreError where it cannot be."""
    match op:
        case UserInputOp():
            await _user_input(actor, id, op, None)
        case UserTurnOp():
            _apply(actor, op)
            await _user_input(actor, id, op, op.final_output_json_schema)
        case OverrideTurnContextOp():
            _apply(actor, op)
        case ExecApprovalOp() | PatchApprovalOp():
            await _approval(actor, op)
        case CompactOp():
            await actor.start(id, CompactTask(actor.services, actor.state, _turn(actor, id)))
        case UndoOp():
            await actor.start(id, UndoTask(actor.services, actor.state, _turn(actor, id)))
        case ReviewOp():
            task = ReviewTask(actor.services, actor.state, _turn(actor, id), op.review_request)
            await actor.start(id, task, Joins.THIS_TURN)
        case RunUserShellCommandOp():
            await actor.start(id, UserShellTask(actor.services, actor.state, _turn(actor, id), op.command))
        case AddToHistoryOp() | GetHistoryEntryRequestOp() | ListMcpToolsOp() | ListCustomPromptsOp():
            services = actor.services
            actor.background(lambda: queries.answer(services, id, op), name=op.type)
        case ResolveElicitationOp():
            actor.services.elicitations.resolve(op)
        case InterruptOp() | ShutdownOp():
            raise AssertionError("the session itself serves these")
        case _:
            assert_never(op)


def remember(actor: Actor, turn_id: str, message: MessageItem) -> None:
    """Words that came too late for their turn: the next request carries them."""
    StoredTranscript(actor.state.history, actor.services.outbox).record(turn_id, [message])


def _turn(actor: Actor, id: str, output_schema: object = None) -> Turn:
    return Turn(id, actor.state.settings, output_schema)


def _apply(actor: Actor, op: UserTurnOp | OverrideTurnContextOp) -> None:
    # A user turn always says which effort it wants; an override only where it names the field, even with null.
    says_effort = isinstance(op, UserTurnOp) or "effort" in op.model_fields_set
    actor.state.change(
        SettingsChange(
            cwd=or_unset(op.cwd),
            approval_policy=or_unset(op.approval_policy),
            sandbox_policy=or_unset(op.sandbox_policy),
            model=or_unset(op.model),
            effort=op.effort if says_effort else UNSET,
            summary=or_unset(op.summary),
        )
    )
    settings = actor.state.settings
    actor.services.roots.learn(settings.sandbox_policy, settings.cwd)


async def _user_input(actor: Actor, id: str, op: UserInputOp | UserTurnOp, schema: object) -> None:
    active = actor.active
    if active is not None and (active.ending or active.joins is Joins.NEXT_TURN):
        # The words begin a turn of their own once that task has ended.
        active.postponed.append(Submission(id=id, op=op))
        return
    if not op.items:
        # Nothing was said: no model is asked about it, and a turn under way goes on as it was.
        if active is None:
            _tell_changes(actor, _turn(actor, id))
            await actor.start(id, NothingToDo())
        return
    message = await as_message(op.items)
    actor.services.telemetry.user_prompt(message_text(message))
    if active is not None and active is actor.active and not active.ending:
        active.add_input(Submission(id=id, op=op), message)
        return
    turn = _turn(actor, id, schema)
    _tell_changes(actor, turn)
    await actor.start(id, RegularTask(actor.services, actor.state, turn, message), Joins.THIS_TURN)


def _tell_changes(actor: Actor, turn: Turn) -> None:
    """The model is told what changed since the last turn; the opening messages stand for the first."""
    now = turn.settings.environment(None)
    before, actor.state.told = actor.state.told, now
    changed = difference(before, now) if before is not None else None
    if changed is not None:
        transcript = StoredTranscript(actor.state.history, actor.services.outbox)
        transcript.record(turn.id, [changed.message()])


async def _approval(actor: Actor, op: ExecApprovalOp | PatchApprovalOp) -> None:
    broker, id = actor.services.broker, op.call_id or op.id
    if not broker.knows(id):
        log.info("an approval for %s, which nobody asked for or which was answered", id)
    elif op.decision is ReviewDecision.ABORT:
        tool = "apply_patch" if isinstance(op, PatchApprovalOp) else "shell"
        actor.services.telemetry.tool_decision(tool, id, op.decision.value, "user")
        await actor.interrupt()
    else:
        broker.resolve(id, op.decision)
