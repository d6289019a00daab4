"""The tasks of a session, of which one runs at a time. It ends by itself or is interrupted, and its end is reported
once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from app_server.engine.session.goal_turns import turn_ends
from app_server.engine.session.operation_queue import OperationQueue, PendingOperation
from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.emitter import TurnEmitter, turn_error
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import TurnAbortReason, TurnKind, TurnStatus
from app_server_protocol.values import replace

log = logging.getLogger(__name__)


class SideWork:
    """The work beside a task that belongs to its turn: it begins once the turn has begun, and the turn does not end
    before it.
    """

    def __init__(self, emitter: TurnEmitter) -> None:
        self._emitter = emitter
        self.waiting: list[tuple[Callable[[], Coroutine[None, None, None]], PendingOperation]] = []
        """Work that has not begun, with its operations."""
        self._group: TaskGroup | None = None
        self._running = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the work run while the block does, which ends after all of it, or is cancelled with it."""
        try:
            async with anyio.create_task_group() as self._group:
                yield
                if not self._running:
                    self._group = (
                        None  # an empty group lets others run as it ends, and waits for nothing they begin
                    )
        finally:
            self._group = None  # an interrupted turn may begin after this, but only for the record

    def add(self, work: Callable[[], Coroutine[None, None, None]], pending: PendingOperation) -> None:
        """Begin work of an operation, now or once the turn has begun."""
        self.waiting.append((work, pending))
        if self._emitter.has_started:
            self._begin()
        else:
            self._emitter.when_started = self._begin

    def _begin(self) -> None:
        if self._group is not None:
            for work, _ in self.waiting:
                self._running += 1
                self._group.start_soon(self._count, work)
            self.waiting.clear()

    async def _count(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        finally:
            self._running -= 1


class SessionTask:
    """Work that takes time, in a turn. This base class is for a turn without input of the user, which only ends; each
    other kind of work is a subclass.
    """

    kind = TurnKind.REGULAR
    takes_input = False
    """Whether the user's input joins the turn while it runs; otherwise it begins a turn of its own afterwards."""

    def __init__(self, turn: TurnContext) -> None:
        self.turn, self.emitter = turn, turn.emitter
        self.scope, self.ended = anyio.CancelScope(), anyio.Event()
        self.ending = False
        self.reason = TurnAbortReason.INTERRUPTED
        self.beside = SideWork(turn.emitter)
        self.postponed: list[PendingOperation] = []
        """Operations that wait for the end of the task."""
        self.taken: list[TurnInput] = []
        """Inputs that joined the task and reached it."""
        self._joined: list[tuple[TurnInput, PendingOperation | None]] = []

    # --- its work
    async def run(self) -> str | None:
        """Do the work, and return the assistant's last message. An exception makes the turn a failed one."""
        return None

    def abandon(self) -> None:
        """Emit the last items of the interrupted task after everything in it has ended, but not the interruption
        itself.
        """

    # --- its life
    @property
    def turn_id(self) -> str:
        return self.emitter.turn_id

    def interrupt(self, reason: TurnAbortReason) -> None:
        if not self.ending:
            self.ending, self.reason = True, reason
            self.scope.cancel()

    def take_postponed(self) -> list[PendingOperation]:
        """Return the operations that waited for the end of the task, or for the start of a turn that never began."""
        return [*self.postponed, *(pending for _, pending in self.beside.waiting)]

    @property
    def guards_input(self) -> bool:
        """Whether the model must not read input that hooks have not judged."""
        return False

    # --- input that joins it
    def join(self, turn_input: TurnInput, late: PendingOperation | None = None) -> None:
        """Add input to the turn, before its next request to the model. The turn must answer it, and all input before
        it, unless `late` is given: an operation that begins a turn with the input if it comes too late.
        """
        if late is None:
            self._joined = [(said, None) for said, _ in self._joined]
        self._joined.append((turn_input, late))

    def take_input(self) -> list[TurnInput]:
        """Return the inputs that joined since the last call."""
        turn_input = [turn_input for turn_input, _ in self._joined]
        self._joined.clear()
        self.taken += turn_input
        return turn_input

    @property
    def has_words(self) -> bool:
        """Whether input joined since the last call of `take_input`."""
        return bool(self._joined)

    @property
    def is_owed(self) -> bool:
        """Whether input waits that this turn must answer."""
        return any(late is None for _, late in self._joined)

    def has_steered(self) -> bool:
        """Return whether input waits that this turn must answer. If not, the turn ends now and accepts no more."""
        promised = self.is_owed
        if not promised:
            self.takes_input = False
        return promised

    def drain_late(self) -> list[PendingOperation]:
        """Return the operation that begins a turn with the input that came too late for this one, if there is any."""
        late = [(turn_input, operation) for turn_input, operation in self._joined if operation is not None]
        self._joined = [each for each in self._joined if each[1] is None]
        if not late:
            return []
        (_, first), *rest = late
        first.steered.extend(turn_input for turn_input, _ in rest)
        return [first]


class TaskRunner:
    """Runs the tasks of one session in the session's task group."""

    def __init__(self, services: SessionServices, queue: OperationQueue, ended: Callable[[], None]) -> None:
        """`ended`: called after each task, once its end is emitted."""
        self.services, self._queue, self._task_ended = services, queue, ended
        self._group: TaskGroup | None = None
        self.active: SessionTask | None = None

    def use(self, group: TaskGroup) -> None:
        """Set the task group of the session, before the first task."""
        self._group = group

    def started_turn(self) -> TurnEmitter | None:
        """Return the current turn if its start was emitted; None otherwise."""
        active = self.active
        return active.emitter if active is not None and active.emitter.has_started else None

    def turn(self, pending: PendingOperation, output_schema: Json = None) -> TurnContext:
        """Create the turn that the operation begins, for its client, with the present settings."""
        services = self.services
        if pending.caller is not services.commands.caller.caller:
            services.commands.caller.use(pending.caller)
        emitter = TurnEmitter(services.outbox, pending.id, pending.turn_id, services.sources.wall_clock)
        return TurnContext(services, emitter, services.state.settings, output_schema)

    async def start(self, task: SessionTask) -> None:
        """Begin a task, after ending the current one as replaced."""
        if self.active is not None:
            await self.interrupt(TurnAbortReason.REPLACED)
        assert self._group is not None
        self.active = task
        self._group.start_soon(self._run, task, name=f"task {task.emitter.operation_id}")

    async def interrupt(self, reason: TurnAbortReason = TurnAbortReason.INTERRUPTED) -> None:
        """End the current task, if there is one, and wait until it has ended."""
        if active := self.active:
            active.interrupt(reason)
            await active.ended.wait()

    async def interrupt_turn(self, turn_id: str) -> None:
        """End this turn; nothing happens if it has ended. A turn that waits for the end of another one ends after that
        one, since a conversation reports one turn at a time.
        """
        active = self.active
        if active is None:
            return
        if active.turn_id == turn_id:
            await self.interrupt()
            return
        active.postponed[:] = [
            replace(each, interrupted=True) if each.turn_id == turn_id else each for each in active.postponed
        ]

    def interrupt_waiting(self, pending: PendingOperation) -> None:
        """Emit the start and the interruption of a turn that was accepted and never begins."""
        emitter = self.turn(pending).emitter
        emitter.turn_started(TurnKind.REGULAR, None)
        emitter.turn_ended(TurnStatus.INTERRUPTED, reason=TurnAbortReason.INTERRUPTED)

    def in_background(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        """Run work that no operation waits for, and whose failure ends nothing."""

        async def guarded() -> None:
            try:
                await work()
            except Exception:
                log.exception("%s", name)

        assert self._group is not None
        self._group.start_soon(guarded, name=name)

    async def _run(self, task: SessionTask) -> None:
        outcome: str | TurnError | None = None
        completed = False
        try:
            with task.scope:
                try:
                    async with task.beside.running():
                        try:
                            outcome = await task.run()
                        except Exception as error:
                            outcome = _failure(error)  # the work beside the task does not end because of it
                except* Exception as errors:
                    outcome = _failure(errors)
                completed = True
        finally:
            self._end(task, outcome, completed=completed)
        self._task_ended()
        self.in_background(self.services.outbox.flush, name="flush")

    def _end(self, task: SessionTask, outcome: str | TurnError | None, *, completed: bool) -> None:
        """End the turn of a task. There is no await in it: no event may come between the task's end and the event that
        reports it.
        """
        waiting = task.take_postponed()
        if completed:
            if task.has_words:
                waiting += task.drain_late()
                _keep_words(task)
            _complete(task, outcome)
        else:
            task.abandon()
            if task.has_words and not task.emitter.has_started:
                task.emitter.turn_started(task.kind, None)  # the joined input is shown in it
            _keep_words(task)
            self._cut(task)
        for pending in waiting:
            self._queue.put_back(pending)
        self.active = None
        self.services.outbox.store()  # a waiter for the end must emit only after the event of it
        task.ended.set()

    def _cut(self, task: SessionTask) -> None:
        """End an interrupted turn, and the commands of earlier turns with it."""
        terminals, emitter = self.services.commands.terminals, task.emitter
        terminals.cut_detached(emitter)
        self.in_background(terminals.close, name="terminals")
        turn_ends(task.turn, interrupted=task.reason is TurnAbortReason.INTERRUPTED)
        emitter.turn_ended(TurnStatus.INTERRUPTED, reason=task.reason)


def _keep_words(task: SessionTask) -> None:
    """Record and show input that joined the turn too late for it: the next request has it."""
    turn, emitter = task.turn, task.emitter
    for turn_input in task.take_input():
        if not task.guards_input:
            turn.services.state.transcript.record(emitter, turn_input.messages())
        if emitter.has_started and turn_input.is_shown:
            emitter.show(turn_input.item(turn.services.sources.new_id()), announced=False)


def _complete(task: SessionTask, outcome: str | TurnError | None) -> None:
    has_goal = task.turn.services.state.goals.goal is not None
    if isinstance(outcome, TurnError):
        if has_goal:
            turn_ends(task.turn, error=outcome if task.kind is TurnKind.REGULAR else None)
        task.emitter.turn_ended(TurnStatus.FAILED, error=outcome)
    else:
        if has_goal:
            turn_ends(task.turn)
        task.emitter.turn_ended(TurnStatus.COMPLETED, last_agent_message=outcome)


def _failure(error: Exception) -> TurnError:
    """Return the error of a turn whose work has failed. The text of an unexpected exception is for the log only."""
    if isinstance(error, ExceptionGroup):
        _, unexpected = error.split(CoreError)
        leaf = _first(unexpected or error)
    else:
        leaf = error
    if isinstance(leaf, CoreError):
        return turn_error(leaf)
    log.error("a task failed", exc_info=error)
    message = f"internal error: {type(leaf).__name__}; the log has the details"
    return TurnError(message, ErrorClass.OTHER)


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
