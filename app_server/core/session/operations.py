"""What each operation means. Settings and answers take effect at once; what takes time becomes a task or goes on in the
background, so that an interrupt is never behind something slow.

Operations that only ask for something (the message history, MCP tools, custom prompts) are answered with one event
under the operation's id.
"""

from __future__ import annotations

import logging
from typing import assert_never

from app_server.core.context.compacted_history import message_text
from app_server.core.context.environment_context import difference
from app_server.core.custom_prompts import FOLDER, discover_prompts
from app_server.core.errors import ConversationError
from app_server.core.session.compaction import CompactTask
from app_server.core.session.goal_turns import goal_words, turn_begins
from app_server.core.session.regular import RegularTask
from app_server.core.session.review import ReviewTask
from app_server.core.session.services import Services
from app_server.core.session.tasks import InputPolicy, NothingToDo, PendingOperation
from app_server.core.session.turn_requests import (
    AddItems,
    ChangeSettings,
    ContinueGoal,
    InterruptTurn,
    RunShell,
    StartTurn,
)
from app_server.core.session.turns import Actor
from app_server.core.session.undo import UndoTask, refuse_undo
from app_server.core.session.user_input import as_words
from app_server.core.session.user_shell import OwnShellTask, UserShellTask, run_with_users_rights
from app_server.core.threads import run_in_thread
from app_server.core.turn.emitter import OperationEmitter
from app_server.core.turn.items import NO_WORDS
from app_server.core.turn.settings import UNSET, SettingsChange, Turn, or_unset
from app_server.core.turn.transcript import StoredTranscript
from protocol.engine.events import SettingsChanged, TurnKind
from protocol.engine.questions import AllowFiles, ClientAnswer, KeepRule
from protocol.events.notices import (
    GetHistoryEntryResponseEvent,
    HistoryEntry,
    ListCustomPromptsResponseEvent,
    WarningEvent,
)
from protocol.events.tools import McpListToolsResponseEvent
from protocol.ops import (
    AddToHistoryOp,
    CompactOp,
    ExecApprovalOp,
    GetHistoryEntryRequestOp,
    InterruptOp,
    ListCustomPromptsOp,
    ListMcpToolsOp,
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
from protocol.policy import ReviewDecision

Lookup = AddToHistoryOp | GetHistoryEntryRequestOp | ListMcpToolsOp | ListCustomPromptsOp


async def answer(services: Services, id: str, op: Lookup) -> None:
    match op:
        case AddToHistoryOp():
            await _add(services, id, op.text)
        case GetHistoryEntryRequestOp():
            await _entry(services, id, op)
        case ListCustomPromptsOp():
            prompts = await run_in_thread(discover_prompts, services.conversation.config.home / FOLDER)
            services.outbox.emit(id, ListCustomPromptsResponseEvent(custom_prompts=tuple(prompts)))
        case ListMcpToolsOp():
            services.outbox.emit(id, await _mcp_tools(services))
        case _:
            assert_never(op)


async def _add(services: Services, id: str, text: str) -> None:
    entry = HistoryEntry(conversation_id=services.conversation.id, ts=services.sources.seconds(), text=text)
    try:
        await services.messages.append(entry)
    except (OSError, ConversationError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        services.outbox.emit(id, WarningEvent(message=f"The message history could not be written ({why})."))


async def _entry(services: Services, id: str, op: GetHistoryEntryRequestOp) -> None:
    found = await services.messages.lookup(op.log_id, op.offset)
    services.outbox.emit(id, GetHistoryEntryResponseEvent(offset=op.offset, log_id=op.log_id, entry=found))


async def _mcp_tools(services: Services) -> McpListToolsResponseEvent:
    return await services.mcp.requests.snapshot()


log = logging.getLogger(__name__)


async def perform(actor: Actor, submission: PendingOperation) -> None:
    """Carry it out, or begin to. Raises CoreError where it cannot be."""
    op = submission.op
    match op:
        case StartTurn() | ContinueGoal() | ChangeSettings() | AddItems() | RunShell():
            await _of_threads(actor, submission, op)
        case UserInputOp():
            await _user_input(actor, submission, op, None)
        case UserTurnOp():
            _apply(actor, submission, op)
            await _user_input(actor, submission, op, op.final_output_json_schema)
        case OverrideTurnContextOp():
            _apply(actor, submission, op)
        case ExecApprovalOp() | PatchApprovalOp():
            await _approval(actor, op)
        case ClientAnswer():
            _answer(actor, op)
        case CompactOp() | UndoOp() | ReviewOp() | RunUserShellCommandOp():
            await _begin_task(actor, submission, op)
        case AddToHistoryOp() | GetHistoryEntryRequestOp() | ListMcpToolsOp() | ListCustomPromptsOp():
            services, id = actor.services, submission.id
            actor.tasks.in_background(lambda: answer(services, id, op), name=op.type)
        case ResolveElicitationOp():
            actor.services.elicitations.resolve(op)
        case InterruptOp() | InterruptTurn() | ShutdownOp():
            raise AssertionError("the session itself serves these")
        case _:
            assert_never(op)


async def _of_threads(
    actor: Actor,
    submission: PendingOperation,
    op: StartTurn | ContinueGoal | ChangeSettings | AddItems | RunShell,
) -> None:
    """Requests of APIs that follow turns."""
    match op:
        case StartTurn():
            await _start_turn(actor, submission, op)
        case ContinueGoal():
            await _continue_goal(actor, submission)
        case ChangeSettings():
            _change(actor, submission, op.change)
            if op.now and actor.tasks.active is not None and isinstance(actor.tasks.active.task, RegularTask):
                actor.tasks.active.task.change_permissions(actor.state.settings)
        case AddItems():
            transcript = StoredTranscript(actor.state.history, actor.services.outbox)
            transcript.record(OperationEmitter(actor.services.outbox, submission.id), op.items)
        case RunShell():
            await _run_shell(actor, submission, op)
        case _:
            assert_never(op)


async def _begin_task(
    actor: Actor, submission: PendingOperation, op: CompactOp | UndoOp | ReviewOp | RunUserShellCommandOp
) -> None:
    turn = _turn(actor, submission)
    services, state = actor.services, actor.state
    match op:
        case CompactOp():
            await actor.tasks.start(turn.emitter, CompactTask(services, state, turn))
        case UndoOp() if actor.tasks.active is not None:
            refuse_undo(services, submission.id)
        case UndoOp():
            await actor.tasks.start(turn.emitter, UndoTask(services, state, turn))
        case ReviewOp():
            task = ReviewTask(services, state, turn, op.review_request)
            await actor.tasks.start(turn.emitter, task, InputPolicy.STEER)
        case RunUserShellCommandOp():
            await actor.tasks.start(turn.emitter, UserShellTask(services, state, turn, op.command))
        case _:
            assert_never(op)


def _turn(actor: Actor, submission: PendingOperation, output_schema: object = None) -> Turn:
    return Turn(actor.tasks.emitter(submission), actor.state.settings, output_schema)


def _apply(actor: Actor, submission: PendingOperation, op: UserTurnOp | OverrideTurnContextOp) -> None:
    # A user turn always says which effort it wants; an override only where it names the field, even with null.
    says_effort = isinstance(op, UserTurnOp) or "effort" in op.model_fields_set
    _change(
        actor,
        submission,
        SettingsChange(
            cwd=or_unset(op.cwd),
            approval_policy=or_unset(op.approval_policy),
            sandbox_policy=or_unset(op.sandbox_policy),
            model=or_unset(op.model),
            effort=op.effort if says_effort else UNSET,
            summary=or_unset(op.summary),
        ),
    )


def _change(actor: Actor, submission: PendingOperation, change: SettingsChange) -> None:
    services, before = actor.services, actor.state.settings
    actor.state.change(change)
    settings = actor.state.settings
    services.commands.roots.learn(settings.sandbox_policy, settings.cwd)
    if settings != before:
        changed = SettingsChanged(
            cwd=settings.cwd,
            approval_policy=settings.approval_policy,
            granular=settings.granular,
            sandbox_policy=settings.sandbox_policy,
            permission_profile=settings.permission_profile,
            model=settings.model,
            model_provider=services.conversation.config.provider.id,
            effort=settings.effort,
            summary=settings.summary,
            mode=settings.mode.kind,
            mode_instructions=settings.mode.instructions,
        )
        services.outbox.emit(submission.id, changed)


async def _start_turn(actor: Actor, submission: PendingOperation, op: StartTurn) -> None:
    """A turn of its own, once the task that runs has ended: whether the words join that one was decided before."""
    if actor.tasks.active is not None:
        actor.tasks.active.postponed.append(submission)
        return
    _change(actor, submission, op.change)
    turn = _turn(actor, submission, op.output_schema)
    _record_changes(actor, turn)
    first, *more = [*([] if op.words is None else [op.words]), *submission.steered] or [NO_WORDS]
    actor.services.reports.telemetry.user_prompt(message_text(first.message))
    task = RegularTask(actor.services, actor.state, turn, first, of_thread=True)
    turn_begins(actor.services, actor.state, asked_for=True)
    await actor.tasks.start(turn.emitter, task, InputPolicy.STEER, steered=more)


async def _continue_goal(actor: Actor, submission: PendingOperation) -> None:
    if actor.tasks.active is not None or actor.turns.any_to_come or not actor.state.goals.wants_turn:
        return
    turn = _turn(actor, submission)
    _record_changes(actor, turn)
    task = RegularTask(actor.services, actor.state, turn, goal_words(actor.state), of_thread=True)
    turn_begins(actor.services, actor.state, asked_for=False)
    await actor.tasks.start(turn.emitter, task, InputPolicy.STEER)


async def _run_shell(actor: Actor, submission: PendingOperation, op: RunShell) -> None:
    """Beside the turn that runs, if it is one of the agent's; after any other."""
    services, state, active = actor.services, actor.state, actor.tasks.active
    if active is None:
        turn = _turn(actor, submission)
        await actor.tasks.start(turn.emitter, OwnShellTask(services, state, turn, op))
    elif active.ending or active.kind is not TurnKind.REGULAR:
        active.postponed.append(submission)
    else:
        turn = Turn(active.emitter, state.settings)
        active.run_beside(lambda: run_with_users_rights(services, state, turn, op))


async def _user_input(
    actor: Actor, submission: PendingOperation, op: UserInputOp | UserTurnOp, schema: object
) -> None:
    active = actor.tasks.active
    if active is not None and (active.ending or active.input_policy is InputPolicy.QUEUE):
        # The words begin a turn of their own once that task has ended.
        active.postponed.append(submission)
        return
    if not op.items:
        # Nothing was said: no model is asked about it, and a turn under way goes on as it was.
        if active is None:
            turn = _turn(actor, submission)
            _record_changes(actor, turn)
            await actor.tasks.start(turn.emitter, NothingToDo())
        return
    words = await as_words(op.items, strict=False)
    actor.services.reports.telemetry.user_prompt(message_text(words.message))
    if active is not None and active is actor.tasks.active and not active.ending:
        active.add_input(submission, words)
        return
    if active is not None:
        actor.queue.put_back(submission)  # the turn ended meanwhile; what it left waits too, in front of this
        return
    turn = _turn(actor, submission, schema)
    _record_changes(actor, turn)
    task = RegularTask(actor.services, actor.state, turn, words)
    await actor.tasks.start(turn.emitter, task, InputPolicy.STEER)


def _record_changes(actor: Actor, turn: Turn) -> None:
    """The model is sent what changed since the last turn; the opening messages stand for the first."""
    now = turn.settings.environment(None)
    before, actor.state.last_sent_context = actor.state.last_sent_context, now
    changed = difference(before, now) if before is not None else None
    if changed is not None:
        transcript = StoredTranscript(actor.state.history, actor.services.outbox)
        transcript.record(turn.emitter, [changed.message()])


def _answer(actor: Actor, op: ClientAnswer) -> None:
    """One that comes too late, or that nobody waits for, has no effect."""
    approvals = actor.services.approvals
    match op.answer:
        case KeepRule():
            approvals.broker.resolve(op.call_id, ReviewDecision.APPROVED, also=op.answer)
        case AllowFiles():
            approvals.broker.resolve(op.call_id, ReviewDecision.APPROVED_FOR_SESSION, also=op.answer)
        case _:
            approvals.questions.resolve(op.call_id, op.answer)


async def _approval(actor: Actor, op: ExecApprovalOp | PatchApprovalOp) -> None:
    broker, id = actor.services.approvals.broker, op.call_id or op.id
    if not broker.is_open(id):
        log.info("an approval for %s, which nobody asked for or which was answered", id)
    elif op.decision is ReviewDecision.ABORT:
        tool = "apply_patch" if isinstance(op, PatchApprovalOp) else "shell"
        actor.services.reports.telemetry.tool_decision(tool, id, op.decision.value, "user")
        if actor.tasks.active is not None:
            actor.tasks.active.emitter.decline(id)
        await actor.tasks.interrupt()
    else:
        broker.resolve(id, op.decision)
