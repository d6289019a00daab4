"""The actor: operations go in, events come out, one task runs at a time.

Owns the order of operations and the life of tasks. What an operation means is in the handlers below; what a task
does is the task's. Nothing here knows of the wire.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from app_server.core.config.features import Features
from app_server.core.config.types import Config, McpServerConfig, RequestOverrides
from app_server.core.context.compacted_history import collect_user_messages
from app_server.core.errors import CoreError
from app_server.core.goals.goal_keeper import GoalChange
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.session.goal_turns import GOAL_OPERATION, seconds, turn_ends
from app_server.core.session.operations import perform, remember
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask, InputPolicy, PendingOperation, SessionTask
from app_server.core.session.turn_requests import (
    ChangeSettings,
    ContinueGoal,
    InterruptTurn,
    NoActiveTurn,
    OtherTurnActive,
    RunShell,
    StartTurn,
    TurnNotSteerable,
    TurnRequest,
)
from app_server.core.threads import run_in_thread
from app_server.core.tools.editor_access import EditorAccess
from app_server.core.tools.output_events import decode
from app_server.core.tools.terminals import Terminal
from app_server.core.turn.emitter import OperationEmitter, TurnEmitter
from app_server.core.turn.errors import turn_error
from app_server.core.turn.settings import Settings
from app_server.core.turn.token_counts import last_usage
from app_server.core.turn.transcript import StoredTranscript
from app_server.core.turn.user_words import UserWords
from protocol.engine.errors import ErrorClass, TurnError
from protocol.engine.events import (
    GoalCleared,
    GoalUpdated,
    McpServersSettled,
    SessionEvent,
    TurnKind,
    TurnStatus,
)
from protocol.engine.goals import Goal
from protocol.engine.items import ItemStatus
from protocol.engine.questions import ClientAnswer
from protocol.events.msg import EventMsg
from protocol.events.notices import ErrorEvent, ShutdownCompleteEvent, WarningEvent
from protocol.events.tokens import TokenUsageInfo
from protocol.events.turn import TurnAbortReason
from protocol.ops import CompactOp, InterruptOp, Op, ReviewOp, ShutdownOp
from protocol.policy import SandboxPolicy
from protocol.responses import ResponseItem

log = logging.getLogger(__name__)

BEGINS_TURN = (StartTurn, CompactOp, ReviewOp, RunShell)
"""Operations of APIs that follow turns which begin one."""


class Session:
    """One conversation, alive."""

    def __init__(self, services: Services, state: SessionState, close: Callable[[], None]) -> None:
        self.services, self.state = services, state
        self._close = close
        self._queue: deque[PendingOperation] = deque()
        self._submissions = 0
        self._goal_turns = 0
        self._submitted = anyio.Event()
        self._performing: PendingOperation | None = None
        self._active: ActiveTask | None = None
        self._group: TaskGroup | None = None
        self.ended = anyio.Event()
        services.terminals.running_turn = self._running_turn

    # --- from outside
    def submit(self, id: str, op: Op | ClientAnswer) -> None:
        """Queue an operation. Its events carry `id`, which the caller makes and uses once. Raises CoreError."""
        self.submit_request(id, op)

    def submit_request(self, id: str, op: Op | ClientAnswer | TurnRequest) -> str:
        """The same for requests of APIs that follow turns; gives the id of the turn that it begins."""
        if self.ended.is_set():
            raise CoreError("the conversation has ended")
        self._submissions += 1
        pending = PendingOperation(id, op, self.services.new_turn_id(), position=self._submissions)
        self._queue.append(pending)
        self._submitted.set()
        return pending.turn_id

    def start_turn(self, id: str, request: StartTurn) -> tuple[str, bool]:
        """Begin a turn, or join the one that runs or is about to: the turn's id, and whether it was joined.

        Raises TurnNotSteerable where a turn runs that takes no words.
        """
        turn = self._joinable()
        if turn is not None and request.words is not None:
            turn.steered.append(request.words)
            self.submit_request(id, ChangeSettings(request.change))
            return (turn.emitter.turn_id if isinstance(turn, ActiveTask) else turn.turn_id), True
        return self.submit_request(id, request), False

    def steer(self, expected_turn_id: str, words: UserWords) -> str:
        """Words for the turn that runs, which the client names. Raises CoreErrors of `turn_requests`."""
        turn = self._joinable()
        if turn is None:
            raise NoActiveTurn("no active turn to steer")
        found = turn.emitter.turn_id if isinstance(turn, ActiveTask) else turn.turn_id
        if found != expected_turn_id:
            raise OtherTurnActive(expected_turn_id, found)
        turn.steered.append(words)
        return found

    def interrupt_turn(self, id: str, turn_id: str | None) -> None:
        """End the turn that runs or one that is to come; None or "" for whichever is first. Does not wait for it."""
        current = self.current_turn_id
        if current is None:
            raise NoActiveTurn("no active turn to interrupt")
        if turn_id and turn_id != current and all(each.turn_id != turn_id for each in self._turns_to_come()):
            raise OtherTurnActive(turn_id, current)
        self.submit_request(id, InterruptTurn(turn_id or current))

    @property
    def current_turn_id(self) -> str | None:
        """The turn that runs, or the first that was asked for and has not begun."""
        if self._active is not None and not self._active.ending:
            return self._active.emitter.turn_id
        waiting = next(iter(self._turns_to_come()), None)
        return waiting.turn_id if waiting is not None else None

    def _turns_to_come(self) -> list[PendingOperation]:
        """Operations that begin turns and have not begun them, in their order."""
        postponed = self._active.postponed if self._active is not None else []
        begun = self._active.emitter.turn_id if self._active is not None else None
        performing = [each for each in (self._performing,) if each is not None and each.turn_id != begun]
        return [each for each in (*performing, *postponed, *self._queue) if isinstance(each.op, BEGINS_TURN)]

    @property
    def turn_waits(self) -> bool:
        """Whether a turn was asked for that has not begun."""
        return bool(self._turns_to_come())

    def _joinable(self) -> ActiveTask | PendingOperation | None:
        to_come = self._turns_to_come()
        for each in to_come:  # these end what runs
            if isinstance(each.op, CompactOp | ReviewOp):
                raise TurnNotSteerable(
                    TurnKind.COMPACT if isinstance(each.op, CompactOp) else TurnKind.REVIEW
                )
        active = self._active
        if active is not None and not active.ending:
            if active.kind in (TurnKind.COMPACT, TurnKind.REVIEW):
                raise TurnNotSteerable(active.kind)
            if active.kind is TurnKind.REGULAR and active.input_policy is InputPolicy.STEER:
                return active
        return next((each for each in to_come if isinstance(each.op, StartTurn)), None)

    # --- the goal
    @property
    def goal(self) -> Goal | None:
        return self.state.goals.goal

    def set_goal(self, change: GoalChange) -> Goal:
        """What the client wants of it. Raises GoalRefused and NoGoal."""
        goal = self.state.goals.set(change, seconds(self.services))
        self.services.outbox.emit("", GoalUpdated(goal))
        self._continue_goal()
        return goal

    def clear_goal(self) -> bool:
        """Whether there was one."""
        cleared = self.state.goals.clear()
        if cleared:
            self.services.outbox.emit("", GoalCleared())
        return cleared

    def restore_goal(self, goal: Goal | None) -> None:
        """That of a stored conversation: no turn begins for it before the user asks for work."""
        self.state.goals.goal = goal

    def _continue_goal(self) -> None:
        """Ask for a turn, which begins once everything that was submitted before is done."""
        if self.state.goals.wants_turn and self._active is None and not self.ended.is_set():
            self._goal_turns += 1
            self.submit_request(f"{GOAL_OPERATION}{self._goal_turns}", ContinueGoal())

    # --- terminals
    def background_terminals(self) -> list[Terminal]:
        """The commands that run between the model's calls, by number."""
        return self.services.terminals.running_on()

    def _running_turn(self) -> TurnEmitter | None:
        active = self._active
        return active.emitter if active is not None and active.emitter.has_started else None

    def end_terminals(self, numbers: Collection[int] | None = None) -> bool:
        """End those of these numbers, or all; whether there were any. Each end is told when it comes."""
        ended = [each for each in self.background_terminals() if numbers is None or each.number in numbers]
        for terminal in ended:
            terminal.pty.kill()
        return bool(ended)

    async def events(self) -> list[SessionEvent]:
        """The events since the last call, waiting for the first; empty once the session has ended."""
        return await self.services.outbox.take()

    def give_back(self, events: Sequence[SessionEvent]) -> None:
        """Events that were taken and that nobody wants any more; they come first the next time."""
        self.services.outbox.give_back(events)

    def store_identity(self) -> None:
        """From now on turns and items are stored with their ids and times."""
        outbox = self.services.outbox
        if outbox.identity:
            return
        outbox.identity = True
        if self._active is not None:
            outbox.record(self._active.emitter.late_start_line())

    @property
    def settings(self) -> Settings:
        """What the next turn starts from."""
        return self.state.settings

    def use_editor(self, editor: EditorAccess) -> None:
        """From now on patches take into account what the client's editor has open."""
        self.state.editor = editor

    @property
    def model_provider(self) -> str:
        return self.services.config.provider.id

    @property
    def mcp(self) -> McpManager:
        return self.services.mcp

    @property
    def request(self) -> RequestOverrides:
        """What the request said that opened it, for loading its configuration again."""
        return self.services.config.request

    @property
    def features(self) -> Features:
        return self.services.config.features

    @property
    def configured_sandbox(self) -> SandboxPolicy:
        """What the configuration and the request that opened it say."""
        return self.services.config.permissions.sandbox_policy

    @property
    def rollout_path(self) -> Path | None:
        """None: it is not stored."""
        return self.services.rollout_path

    @property
    def config(self) -> Config:
        """With which it was opened; its settings may have changed since."""
        return self.services.config

    @property
    def usage(self) -> TokenUsageInfo | None:
        """None: no request has told of any."""
        return self.state.tokens.info

    @property
    def busy(self) -> bool:
        """Whether something runs or is about to, or a command goes on."""
        return self._active is not None or bool(self._queue) or len(self.services.terminals) > 0

    @property
    def instruction_sources(self) -> tuple[str, ...]:
        """The files whose instructions the model was told."""
        return self.services.instructions.sources

    @property
    def first_words(self) -> str:
        """What the user said first; "" before that."""
        return next(iter(collect_user_messages(self.state.history.items)), "")

    def store(self) -> None:
        """What was emitted so far is in its file from now on."""
        self.services.outbox.store()

    async def history_metadata(self) -> tuple[int, int]:
        """Of the message history that all conversations share: which file it is, and how many entries it has."""
        return await run_in_thread(self.services.history_file.metadata)

    @property
    def active(self) -> ActiveTask | None:
        return self._active

    async def run(self) -> None:
        """Serve operations until `shutdown` or cancellation; what was said until then is stored."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(self.services.outbox.run, name="outbox")
                group.start_soon(self._serve, name="operations")
                if self.services.mcp.configured:
                    self._start_servers(group)
                await self.ended.wait()
                group.cancel_scope.cancel()
        finally:
            self.ended.set()
            # Also where the writer was cancelled first: the last words are stored.
            self.services.outbox.store()
            self.services.outbox.close()
            self._close()
            self.services.roots.close()
            await self.services.terminals.close()

    def reload_servers(self, servers: Mapping[str, McpServerConfig]) -> None:
        """End its MCP servers and start these. Calls that run fail."""
        self.services.mcp.reload(servers)
        if self._group is not None and not self.ended.is_set():
            self._start_servers(self._group)

    def _start_servers(self, group: TaskGroup) -> None:
        if not self.services.mcp.started:
            group.start_soon(self.services.mcp.run_servers, name="mcp")
        group.start_soon(self._tell_of_servers, name="mcp start")

    async def _tell_of_servers(self) -> None:
        mcp, outbox = self.services.mcp, self.services.outbox
        servers = mcp.servers
        await mcp.ready()
        if mcp.servers is not servers:
            return  # others were started meanwhile, and are told of when they are ready
        outbox.emit("", McpServersSettled(tuple(failure.message for failure in mcp.failures())))
        for notice in mcp.notices():
            outbox.emit("", WarningEvent(message=notice))

    # --- before it runs
    def begin_with(self, id: str, items: Sequence[ResponseItem]) -> None:
        """The first items of its history, which are stored at once."""
        emitter = OperationEmitter(self.services.outbox, id)
        StoredTranscript(self.state.history, self.services.outbox).record(emitter, items)
        self.services.outbox.store()

    def restore(self, items: Sequence[ResponseItem]) -> None:
        """The history of a stored conversation."""
        self.state.history.replace(items)

    def restore_usage(self, stored: Sequence[EventMsg]) -> None:
        """What a stored conversation cost so far is counted on; without this, counting begins anew."""
        self.state.tokens.info = last_usage(stored)

    def warn(self, id: str, message: str) -> None:
        self.services.outbox.emit(id, WarningEvent(message=message))

    # --- operations
    async def _serve(self) -> None:
        while True:
            while not self._queue:
                await self._submitted.wait()
                self._submitted = anyio.Event()
            submission = self._performing = self._queue.popleft()
            match submission.op:
                case InterruptOp():
                    await self.interrupt()
                case InterruptTurn(turn_id=turn_id):
                    await self._interrupt_turn(turn_id)
                case ShutdownOp():
                    await self._shut_down(submission.id)
                    return
                case _:
                    await self._operate(submission)
            self._performing = None

    async def _interrupt_turn(self, turn_id: str) -> None:
        active = self._active
        if active is None:
            return  # it has ended
        if active.emitter.turn_id == turn_id:
            await self.interrupt()
            return
        for waiting in [each for each in active.postponed if each.turn_id == turn_id]:
            active.postponed.remove(waiting)
            self.emitter(waiting).turn_ended(TurnStatus.INTERRUPTED, reason=TurnAbortReason.INTERRUPTED)

    async def _operate(self, submission: PendingOperation) -> None:
        try:
            await perform(self, submission)
        except CoreError as error:
            self.services.outbox.emit(submission.id, ErrorEvent(message=str(error)))
        except Exception as error:
            log.exception("operation %s", getattr(submission.op, "type", type(submission.op).__name__))
            self.services.outbox.emit(
                submission.id, ErrorEvent(message=f"internal error: {type(error).__name__}")
            )

    async def interrupt(self, reason: TurnAbortReason = TurnAbortReason.INTERRUPTED) -> None:
        """End the running task, if there is one; returns once it has ended."""
        if active := self._active:
            active.interrupt(reason)
            await active.ended.wait()

    async def _shut_down(self, id: str) -> None:
        await self.interrupt()
        outbox = self.services.outbox
        await outbox.flush()
        outbox.emit(id, ShutdownCompleteEvent())
        outbox.store()
        self.ended.set()

    # --- tasks
    def emitter(self, submission: PendingOperation) -> TurnEmitter:
        """For the turn that the operation begins."""
        return TurnEmitter(
            self.services.outbox, submission.id, submission.turn_id, lambda: self.services.now().timestamp()
        )

    async def start(
        self,
        emitter: TurnEmitter,
        task: SessionTask,
        input_policy: InputPolicy = InputPolicy.QUEUE,
        steered: Sequence[UserWords] = (),
    ) -> None:
        """Begin a task; one that runs is ended first, as replaced. `steered`: words that joined it already."""
        await self.interrupt(TurnAbortReason.REPLACED)
        assert self._group is not None
        active = self._active = ActiveTask(
            emitter=emitter, task=task, input_policy=input_policy, steered=list(steered)
        )
        self._group.start_soon(self._run_task, active, name=f"task {active.id}")

    def put_back(self, submission: PendingOperation) -> None:
        """It has to wait, and is carried out before everything that was submitted after it."""
        later = (n for n, each in enumerate(self._queue) if each.position > submission.position)
        self._queue.insert(next(later, len(self._queue)), submission)
        self._submitted.set()

    def background(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        """Work on the side that the operation loop need not wait for, and whose failure ends nothing."""

        async def guarded() -> None:
            try:
                await work()
            except Exception:
                log.exception("%s", name)

        assert self._group is not None
        self._group.start_soon(guarded, name=name)

    async def _run_task(self, active: ActiveTask) -> None:
        outbox = self.services.outbox
        outcome: str | TurnError | None = None
        completed = False
        try:
            with active.scope:
                outcome = await self._outcome(active)
                completed = True
        finally:
            # No await from here on: nothing may come between the task's end and the word of it.
            waiting = active.postponed
            if completed:
                if isinstance(outcome, TurnError):
                    failed = outcome if active.kind is TurnKind.REGULAR else None
                    turn_ends(self.services, self.state, active.emitter, error=failed)
                    active.emitter.turn_ended(TurnStatus.FAILED, error=outcome)
                else:
                    turn_ends(self.services, self.state, active.emitter)
                    active.emitter.turn_ended(TurnStatus.COMPLETED, last_agent_message=outcome)
                waiting += active.drain_pending()
            else:
                active.task.interrupted()
                self._cut_terminals(active.emitter)
                self.background(self.services.terminals.close, name="terminals")
                interrupted = active.reason is TurnAbortReason.INTERRUPTED
                turn_ends(self.services, self.state, active.emitter, interrupted=interrupted)
                active.emitter.turn_ended(TurnStatus.INTERRUPTED, reason=active.reason)
            for words in active.take_input():
                remember(self, OperationEmitter(outbox, active.id), words)
            for submission in waiting:
                self.put_back(submission)
            self._submitted.set()
            self._active = None
            outbox.store()  # whoever waits for the end says so only after the word of it
            active.ended.set()
        self._continue_goal()
        self.background(outbox.flush, name="flush")

    def _cut_terminals(self, emitter: TurnEmitter) -> None:
        """Commands of earlier turns that an interrupt ends, too: their items end with it."""
        for terminal in self.services.terminals.detached():
            assert terminal.begun is not None
            item = replace(terminal.item, status=ItemStatus.FAILED, output=decode(terminal.output.value()))
            emitter.complete_detached(item, terminal.begun, terminal.turn_id, cut=True)
            terminal.begun, terminal.end_told = None, True

    async def _outcome(self, active: ActiveTask) -> str | TurnError | None:
        """The last thing the assistant said, or why the turn failed."""
        try:
            return await active.run()
        except* CoreError as core_errors:
            failure = turn_error(_first(core_errors))
        except* Exception as errors:
            log.error("a task failed", exc_info=errors)
            message = f"internal error: {type(_first(errors)).__name__}; the log has the details"
            failure = TurnError(message, ErrorClass.OTHER)
        return failure


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
