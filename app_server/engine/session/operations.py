"""The effect of each command. Settings and answers take effect at once. A command that takes time becomes a task or
continues in the background, so that an interrupt never waits for something slow.

Commands that only request information (the message history, MCP tools, custom prompts) are answered with one event
under the operation's id.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from app_server.engine.context import custom_prompts
from app_server.engine.context.environment_context import environment_change
from app_server.engine.model.model_facts import tier_in_force
from app_server.engine.session import compaction, review, session_commands, undo, user_shell
from app_server.engine.session.goal_turns import goal_words
from app_server.engine.session.modes import mode_message, told_mode
from app_server.engine.session.operation_queue import PendingOperation
from app_server.engine.session.regular import RegularTask
from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.session.system_prompt import prompt_message, told_prompt
from app_server.engine.session.tasks import SessionTask, TaskRunner
from app_server.engine.session.turn_context import context_line
from app_server.engine.session.turn_control import TurnControl
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ConversationError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.turn.emitter import OperationEmitter
from app_server.engine.turn.turn_items import NO_WORDS, TurnInput
from app_server_protocol.engine.events import SettingsChanged, TurnKind
from app_server_protocol.engine.notices import (
    CustomPromptsListed,
    HistoryEntry,
    HistoryEntryFound,
    WarningNotice,
)
from app_server_protocol.engine.thread_settings import UNCHANGED, SettingsPatch, ThreadSettings
from app_server_protocol.policy import ReviewDecision
from app_server_protocol.values import replace

log = logging.getLogger(__name__)


async def perform(turns: TurnControl, pending: PendingOperation) -> None:  # noqa: C901 - one case for each command
    """Carry out the command, or begin to. Raises CoreError if that is impossible."""
    tasks, services = turns.tasks, turns.tasks.services
    match command := pending.command:
        case _ if pending.interrupted:
            tasks.interrupt_waiting(pending)
        case (
            session_commands.StartTurn()
            | session_commands.ContinueGoal()
            | session_commands.Compact()
            | session_commands.Undo()
            | session_commands.Review()
            | session_commands.RunShell()
        ):
            if (task := _task(turns, pending, command)) is not None:
                await tasks.start(task)
        case session_commands.Interrupt(turn_id=turn_id):
            await (tasks.interrupt() if turn_id is None else tasks.interrupt_turn(turn_id))
        case session_commands.ChangeSettings():
            _change(tasks, pending, command.change)
            if command.now and isinstance(tasks.active, RegularTask):
                tasks.active.change_permissions(services.state.settings)
        case session_commands.AddItems():
            services.state.transcript.record(OperationEmitter(services.outbox, pending.id), command.items)
        case session_commands.ResolveApproval():
            await _decide(tasks, command)
        case session_commands.ResolveUserInput():
            services.approvals.questions.resolve(command.call_id, command.answer)
        case session_commands.AnswerElicitation():
            services.elicitations.resolve(command)
        case (
            session_commands.AddToHistory()
            | session_commands.LookUpHistory()
            | session_commands.ListTools()
            | session_commands.ListPrompts() as lookup
        ):
            tasks.in_background(lambda: _answer(services, pending.id, lookup), name=type(lookup).__name__)
        case session_commands.Close():
            raise AssertionError("the session itself ends")


def _task(
    turns: TurnControl, pending: PendingOperation, command: session_commands.BeginsTask
) -> SessionTask | None:
    """Return the task that a command begins; None if it begins none now."""
    tasks = turns.tasks
    match command:
        case session_commands.StartTurn():
            return _user_turn(tasks, pending, command)
        case session_commands.ContinueGoal():
            return _goal_turn(turns, pending)
        case session_commands.Compact():
            return compaction.CompactTask(tasks.turn(pending))
        case session_commands.Undo() if tasks.active is not None:
            undo.refuse_undo(tasks.services, pending.id)
            return None
        case session_commands.Undo(back=back):
            return undo.UndoTask(tasks.turn(pending), back=back)
        case session_commands.Review():
            task = review.ReviewTask(tasks.turn(pending), command.request)
            for turn_input in pending.steered:
                task.join(turn_input)
            return task
        case session_commands.RunShell():
            return _shell_turn(tasks, pending, command)


def _change(tasks: TaskRunner, pending: PendingOperation, change: SettingsPatch) -> None:
    services, before = tasks.services, tasks.services.state.settings
    settings, no_tier = _with_known_tier(services, before.patched(change), before)
    services.state.settings = before if settings == before else settings  # what was made of equal ones stays
    services.commands.roots.learn(settings.sandbox_policy, settings.cwd)
    if settings.system_prompt != before.system_prompt:  # kept even if no turn follows
        services.outbox.record(context_line(services, settings))
    if settings != before:
        provider = services.conversation.config.provider.id
        services.outbox.emit(pending.id, SettingsChanged(settings, provider))
    if settings.cwd != before.cwd and not os.path.isdir(settings.cwd):
        missing = user_messages.working_directory_missing(settings.cwd)
        services.outbox.emit(pending.id, WarningNotice(message=str(missing)))
    if no_tier is not None:
        services.outbox.emit(pending.id, WarningNotice(message=no_tier))


def _with_known_tier(
    services: SessionServices, settings: ThreadSettings, before: ThreadSettings
) -> tuple[ThreadSettings, str | None]:
    """Return settings without a service tier that their model lacks, and the warning about it; None if there is
    none.
    """
    if (settings.service_tier, settings.model) == (before.service_tier, before.model):
        return settings, None
    tier, warning = tier_in_force(settings.service_tier, settings.model, services.model.facts)
    return replace(settings, service_tier=tier), warning


def _user_turn(
    tasks: TaskRunner, pending: PendingOperation, command: session_commands.StartTurn
) -> SessionTask | None:
    """Return a turn with the user's input; None if the current task has to end first. That the input joins no other
    turn is already decided.
    """
    if tasks.active is not None:
        tasks.active.postponed.append(pending)
        return None
    if command.change != UNCHANGED:
        _change(tasks, pending, command.change)
    turn, wishes = tasks.turn(pending, command.output_schema), command.wishes
    turn_input = [*([] if command.turn_input is None else [command.turn_input]), *pending.steered]
    if turn_input or wishes.names_turn:
        return _regular_task(turn, turn_input or [NO_WORDS], wishes, asked_for=True)
    _record_changes(turn)
    return SessionTask(turn)


def _goal_turn(turns: TurnControl, pending: PendingOperation) -> SessionTask | None:
    """Return a turn for the goal; None unless the goal is still open and the conversation is idle."""
    tasks, goals = turns.tasks, turns.tasks.services.state.goals
    if tasks.active is not None or turns.any_to_come or goals.goal is None or not goals.wants_turn:
        return None
    turn_input = [goal_words(goals.goal)]
    return _regular_task(tasks.turn(pending), turn_input, session_commands.ALL_WISHES, asked_for=False)


def _regular_task(
    turn: TurnContext,
    turn_input: Sequence[TurnInput],
    wishes: session_commands.ApiBehaviour,
    *,
    asked_for: bool,
) -> RegularTask:
    """Return a turn that begins with the first input; the other inputs join it."""
    _record_changes(turn)
    task = RegularTask(turn, turn_input[0], wishes)
    for more in turn_input[1:]:
        task.join(more)
    if wishes.goals:
        state, clock = turn.services.state, turn.services.sources.clock()
        state.goals.turn_begins(state.tokens.total, clock, asked_for=asked_for)
    return task


def _shell_turn(
    tasks: TaskRunner, pending: PendingOperation, command: session_commands.RunShell
) -> SessionTask | None:
    """Return a turn for the user's command; None if it runs beside the current turn, which is one of the agent, or
    after another one.
    """
    services, active = tasks.services, tasks.active
    if command.confined or active is None:
        return user_shell.UserShellTask(tasks.turn(pending), command)
    if active.ending or active.kind is not TurnKind.REGULAR:
        active.postponed.append(pending)
    else:
        turn = TurnContext(services, active.emitter, services.state.settings)
        active.beside.add(lambda: user_shell.UserShellTask(turn, command).run_with_users_rights(), pending)
    return None


def _record_changes(turn: TurnContext) -> None:
    """Send the model the changes since the last turn; before the first turn, the opening messages have them."""
    state = turn.services.state
    before = state.told
    if before is not None and before[0] is turn.settings and before[1] == state.told_mode:
        return
    changed = None if before is None else environment_change(before[0], turn.settings)
    if changed is not None:
        turn.record(changed)
    given = turn.settings.system_prompt
    if before is None or before[0].system_prompt != given:
        instructions = prompt_message(given, told_prompt(state.history.items))
        if instructions is not None:
            turn.record(instructions)
    mode = mode_message(turn.settings, state.told_mode)
    if mode is not None:
        turn.record(mode)
        state.told_mode = told_mode([mode])
    state.told = turn.settings, state.told_mode


async def _decide(tasks: TaskRunner, command: session_commands.ResolveApproval) -> None:
    """Resolve a request for approval. An answer that comes too late, or that no request waits for, has no effect."""
    services, id, decision = tasks.services, command.id, command.decision
    if not services.approvals.broker.is_open(id):
        log.info("an approval for %s, which nobody asked for or which was answered", id)
    elif decision is ReviewDecision.ABORT:
        services.reports.telemetry.tool_decision(command.tool, id, decision.value, "user")
        if tasks.active is not None:
            tasks.active.emitter.decline(id)
        await tasks.interrupt()
    else:
        services.approvals.broker.resolve(id, decision, also=command.also)


async def _answer(services: SessionServices, id: str, lookup: session_commands.Lookup) -> None:
    match lookup:
        case session_commands.AddToHistory(text=text):
            await _add_to_history(services, id, text)
        case session_commands.LookUpHistory(offset=offset, log_id=log_id):
            entry = await services.home.messages.lookup(log_id, offset)
            found = HistoryEntryFound(offset=offset, log_id=log_id, entry=entry)
            services.outbox.emit(id, found)
        case session_commands.ListPrompts():
            home = services.conversation.config.home
            prompts = await run_in_thread(custom_prompts.discover_prompts, home / custom_prompts.FOLDER)
            services.outbox.emit(id, CustomPromptsListed(tuple(prompts)))
        case session_commands.ListTools():
            services.outbox.emit(id, await services.mcp.requests.snapshot())


async def _add_to_history(services: SessionServices, id: str, text: str) -> None:
    entry = HistoryEntry(
        conversation_id=services.conversation.id, ts=int(services.sources.wall_clock()), text=text
    )
    try:
        await services.home.messages.append(entry)
    except (OSError, ConversationError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        services.outbox.emit(id, WarningNotice(message=f"The message history could not be written ({why})."))
