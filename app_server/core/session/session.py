"""The actor: operations go in, events come out, one task runs at a time.

Owns the order of operations and the life of tasks. What an operation means is in the handlers below; what a task
does is the task's. Nothing here knows of the wire.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from app_server.core.errors import CoreError
from app_server.core.session.operations import perform, remember
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask, InputPolicy, PendingOperation, SessionTask
from app_server.core.session.turn_requests import (
    ChangeSettings,
    NoActiveTurn,
    OtherTurnActive,
    StartTurn,
    TurnNotSteerable,
    TurnRequest,
)
from app_server.core.threads import run_in_thread
from app_server.core.tools.output_events import decode
from app_server.core.turn.emitter import OperationEmitter, TurnEmitter
from app_server.core.turn.errors import turn_error
from app_server.core.turn.settings import Settings
from app_server.core.turn.transcript import StoredTranscript
from app_server.core.turn.user_words import UserWords
from protocol.engine.errors import ErrorClass, TurnError
from protocol.engine.events import SessionEvent, TurnKind, TurnStatus
from protocol.engine.items import ItemStatus
from protocol.events.notices import ErrorEvent, ShutdownCompleteEvent, WarningEvent
from protocol.events.turn import TurnAbortReason
from protocol.ops import InterruptOp, Op, ShutdownOp
from protocol.responses import ResponseItem

log = logging.getLogger(__name__)


class Session:
    """One conversation, alive."""

    def __init__(self, services: Services, state: SessionState, close: Callable[[], None]) -> None:
        self.services, self.state = services, state
        self._close = close
        self._queue: deque[PendingOperation] = deque()
        self._submissions = 0
        self._submitted = anyio.Event()
        self._active: ActiveTask | None = None
        self._group: TaskGroup | None = None
        self.ended = anyio.Event()

    # --- from outside
    def submit(self, id: str, op: Op) -> None:
        """Queue an operation. Its events carry `id`, which the caller makes and uses once. Raises CoreError."""
        self.submit_request(id, op)

    def submit_request(self, id: str, op: Op | TurnRequest) -> str:
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
        """End the turn that runs or is about to; None or "" for whichever it is. Does not wait for its end."""
        current = self.current_turn_id
        if current is None:
            raise NoActiveTurn("no active turn to interrupt")
        if turn_id and turn_id != current:
            raise OtherTurnActive(turn_id, current)
        self.submit(id, InterruptOp())

    @property
    def current_turn_id(self) -> str | None:
        """The turn that runs, or the first that was asked for and has not begun."""
        if self._active is not None and not self._active.ending:
            return self._active.emitter.turn_id
        waiting = self._waiting_turn()
        return waiting.turn_id if waiting is not None else None

    def _waiting_turn(self) -> PendingOperation | None:
        postponed = self._active.postponed if self._active is not None else []
        return next((each for each in [*postponed, *self._queue] if isinstance(each.op, StartTurn)), None)

    def _joinable(self) -> ActiveTask | PendingOperation | None:
        active = self._active
        if active is not None and not active.ending:
            if active.kind in (TurnKind.COMPACT, TurnKind.REVIEW):
                raise TurnNotSteerable(active.kind)
            if active.kind is TurnKind.REGULAR and active.input_policy is InputPolicy.STEER:
                return active
        return self._waiting_turn()

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

    @property
    def model_provider(self) -> str:
        return self.services.config.model_provider_id

    @property
    def rollout_path(self) -> Path:
        return self.services.rollout_path

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
                    group.start_soon(self.services.mcp.run_servers, name="mcp")
                    group.start_soon(self._tell_of_servers, name="mcp start")
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

    async def _tell_of_servers(self) -> None:
        mcp, outbox = self.services.mcp, self.services.outbox
        await mcp.ready()
        for failure in mcp.failures():
            outbox.emit("", ErrorEvent(message=failure.message))
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

    def warn(self, id: str, message: str) -> None:
        self.services.outbox.emit(id, WarningEvent(message=message))

    # --- operations
    async def _serve(self) -> None:
        while True:
            while not self._queue:
                await self._submitted.wait()
                self._submitted = anyio.Event()
            submission = self._queue.popleft()
            match submission.op:
                case InterruptOp():
                    await self.interrupt()
                case ShutdownOp():
                    await self._shut_down(submission.id)
                    return
                case _:
                    await self._operate(submission)

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
                    active.emitter.turn_ended(TurnStatus.FAILED, error=outcome)
                else:
                    active.emitter.turn_ended(TurnStatus.COMPLETED, last_agent_message=outcome)
                waiting += active.drain_pending()
            else:
                active.task.interrupted()
                self._cut_terminals(active.emitter)
                self.background(self.services.terminals.close, name="terminals")
                active.emitter.turn_ended(TurnStatus.INTERRUPTED, reason=active.reason)
            for words in active.take_input():
                remember(self, OperationEmitter(outbox, active.id), words)
            for submission in waiting:
                self.put_back(submission)
            self._submitted.set()
            self._active = None
            outbox.store()  # whoever waits for the end says so only after the word of it
            active.ended.set()
        self.background(outbox.flush, name="flush")

    def _cut_terminals(self, emitter: TurnEmitter) -> None:
        """Commands of earlier turns that an interrupt ends, too: their items end with it."""
        for terminal in self.services.terminals.detached():
            assert terminal.begun is not None
            item = replace(terminal.item, status=ItemStatus.FAILED, output=decode(terminal.output.value()))
            emitter.complete_detached(item, terminal.begun, terminal.turn_id, cut=True)
            terminal.begun = None

    async def _outcome(self, active: ActiveTask) -> str | TurnError | None:
        """The last thing the assistant said, or why the turn failed."""
        try:
            return await active.task.run(active)
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
