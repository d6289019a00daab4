"""The current task of a session, and its pending operations, in the order of their submission.

One task runs at a time. It ends by itself or is interrupted, and its end is reported once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.client_context import ClientContext
from app_server.engine.session.goal_turns import turn_ends
from app_server.engine.session.session_commands import Command
from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.emitter import TurnEmitter, turn_error
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import TurnAbortReason, TurnKind, TurnStatus
from app_server_protocol.values import replace


class PendingOperation(Struct, frozen=True):
    """A submitted command with its id, and the id of the turn that it begins, if it begins one."""

    id: str
    command: Command
    turn_id: str
    steered: list[TurnInput] = msgspec.field(default_factory=list)
    """Inputs that joined the turn before it began."""
    interrupted: bool = False
    """Whether the turn was interrupted while it waited for another one; it then ends as soon as it begins."""
    position: int = 0
    """Number in the order in which operations were submitted; a postponed operation keeps it."""
    caller: ClientContext | None = None
    """Client that submitted the command; None if the session itself did."""

    def join(self, turn_input: TurnInput, late: PendingOperation | None = None) -> None:
        """Add input to the turn that this operation begins, so that the input is never late."""
        self.steered.append(turn_input)


class SessionTask:
    """Work that takes time, in a turn. This base class is for a turn without input of the user, which only ends."""

    kind = TurnKind.REGULAR
    takes_input = False
    """Whether the user's input joins the turn while it runs; otherwise it begins a turn of its own afterwards."""

    def __init__(self, turn: TurnContext) -> None:
        self.turn = turn

    async def run(self, active: ActiveTask) -> str | None:
        """Do the work, and return the assistant's last message. An exception makes the turn a failed one."""
        return None

    def interrupted(self) -> None:
        """Emit the last items of the task after everything in it has ended, but not the interruption itself."""


class ActiveTask(Struct, kw_only=True):
    """The current task."""

    task: SessionTask
    takes_input: bool
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    ended: anyio.Event = msgspec.field(default_factory=anyio.Event)
    reason: TurnAbortReason = TurnAbortReason.INTERRUPTED
    ending: bool = False
    postponed: list[PendingOperation] = msgspec.field(default_factory=list)
    """Operations that wait for the end of the task."""
    taken: list[TurnInput] = msgspec.field(default_factory=list)
    """Inputs that joined the task and reached it."""
    _joined: list[tuple[TurnInput, PendingOperation | None]] = msgspec.field(default_factory=list)
    _beside: list[tuple[Callable[[], Coroutine[None, None, None]], PendingOperation]] = msgspec.field(
        default_factory=list
    )
    """Work that waits for the start of the turn, with its operation."""
    _group: TaskGroup | None = None
    _running_beside: int = 0

    async def run(self) -> str | None:
        """Run the task and the work beside it. That work ends before this call does, or is cancelled with it."""
        failure: Exception | None = None
        last_message = None
        self.emitter.when_started = self._begin_beside
        try:
            async with anyio.create_task_group() as self._group:
                try:
                    last_message = await self.task.run(self)
                except Exception as error:
                    failure = error  # the work beside the task does not end because of it
                if not self._running_beside:
                    self._group = (
                        None  # an empty group lets others run as it ends, and waits for nothing they begin
                    )
        finally:
            self._group = None  # an interrupted turn may begin after this, but only for the record
        if failure is not None:
            raise failure
        return last_message

    def run_beside(self, work: Callable[[], Coroutine[None, None, None]], pending: PendingOperation) -> None:
        """Begin work that belongs to the turn once the turn has begun; the turn does not end before this work. If the
        turn never begins, the operation is postponed.
        """
        self._beside.append((work, pending))
        if self.emitter.has_started:
            self._begin_beside()

    def _begin_beside(self) -> None:
        if self._group is not None:
            for work, _ in self._beside:
                self._running_beside += 1
                self._group.start_soon(self._count, work)
            self._beside.clear()

    async def _count(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        finally:
            self._running_beside -= 1

    def take_postponed(self) -> list[PendingOperation]:
        """Return the operations that waited for the end of the task, or for the start of a turn that never began."""
        return [*self.postponed, *(pending for _, pending in self._beside)]

    @property
    def kind(self) -> TurnKind:
        return self.task.kind

    @property
    def emitter(self) -> TurnEmitter:
        return self.task.turn.emitter

    @property
    def turn_id(self) -> str:
        return self.emitter.turn_id

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

    def has_steered(self) -> bool:
        """Return whether input waits that this turn must answer. If not, the turn ends now and accepts no more."""
        promised = any(late is None for _, late in self._joined)
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

    def interrupt(self, reason: TurnAbortReason) -> None:
        if not self.ending:
            self.ending, self.reason = True, reason
            self.scope.cancel()


class OperationQueue:
    """The queue of a session's operations, with many producers and one consumer."""

    def __init__(self, new_turn_id: Callable[[], str]) -> None:
        self._new_turn_id = new_turn_id
        self._waiting: deque[PendingOperation] = deque()
        self._submissions = 0
        self._some = anyio.Event()
        self.closed = False
        self.performing: PendingOperation | None = None
        """Operation that was taken and is being carried out; None if there is none."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingOperation]:
        """Iterate over the waiting operations, without the one that is being carried out."""
        return iter(self._waiting)

    def accept(self, id: str, command: Command, caller: ClientContext | None = None) -> PendingOperation:
        """Assign a command its position without adding it to the queue: it may be put back later.

        Its events carry `id`. Raises CoreError once the queue is closed.
        """
        if self.closed:
            raise CoreError("the conversation has ended")
        self._submissions += 1
        return PendingOperation(id, command, self._new_turn_id(), position=self._submissions, caller=caller)

    def submit(self, id: str, command: Command, caller: ClientContext | None = None) -> PendingOperation:
        """Add a command at the end. Raises CoreError once the queue is closed."""
        pending = self.accept(id, command, caller)
        self._waiting.append(pending)
        self._some.set()
        return pending

    def put_back(self, pending: PendingOperation) -> None:
        """Put an operation back into the queue, before all operations that were submitted after it."""
        later = (n for n, each in enumerate(self._waiting) if each.position > pending.position)
        self._waiting.insert(next(later, len(self._waiting)), pending)
        self._some.set()

    async def take(self) -> PendingOperation:
        """Wait for the first operation and return it; it is `performing` until `done` is called."""
        while not self._waiting:
            await self._some.wait()
            self._some = anyio.Event()
        self.performing = self._waiting.popleft()
        return self.performing

    def done(self) -> None:
        self.performing = None

    def close(self) -> None:
        self.closed = True


log = logging.getLogger(__name__)


class TaskRunner:
    """Runs the tasks of one session in the session's task group."""

    def __init__(self, services: SessionServices, queue: OperationQueue, ended: Callable[[], None]) -> None:
        """`ended`: called after each task, once its end is emitted."""
        self.services, self._queue, self._task_ended = services, queue, ended
        self._group: TaskGroup | None = None
        self.active: ActiveTask | None = None

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
        services.commands.caller.use(pending.caller)
        emitter = TurnEmitter(services.outbox, pending.id, pending.turn_id, services.sources.wall_clock)
        return TurnContext(services, emitter, services.state.settings, output_schema)

    async def start(
        self,
        task: SessionTask,
        steered: Sequence[TurnInput] = (),
    ) -> None:
        """Begin a task, after ending the current one as replaced. `steered`: inputs that already joined it."""
        await self.interrupt(TurnAbortReason.REPLACED)
        assert self._group is not None
        active = self.active = ActiveTask(task=task, takes_input=task.takes_input)
        for turn_input in steered:
            active.join(turn_input)
        self._group.start_soon(self._run, active, name=f"task {task.turn.operation_id}")

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

    async def _run(self, active: ActiveTask) -> None:
        outbox = self.services.outbox
        outcome: str | TurnError | None = None
        completed = False
        try:
            with active.scope:
                outcome = await _outcome(active)
                completed = True
        finally:
            # There is no await from here on: no event may come between the task's end and the event that reports it.
            waiting = active.take_postponed()
            if completed:
                waiting += active.drain_late()
                _keep_words(active)
                _complete(active, outcome)
            else:
                active.task.interrupted()
                if active.has_words and not active.emitter.has_started:
                    active.emitter.turn_started(active.kind, None)  # the joined input is shown in it
                _keep_words(active)
                self._cut(active)
            for pending in waiting:
                self._queue.put_back(pending)
            self.active = None
            outbox.store()  # a waiter for the end must emit only after the event of it
            active.ended.set()
        self._task_ended()
        self.in_background(outbox.flush, name="flush")

    def _cut(self, active: ActiveTask) -> None:
        """End an interrupted turn, and the commands of earlier turns with it."""
        terminals, emitter = self.services.commands.terminals, active.emitter
        terminals.cut_detached(emitter)
        self.in_background(terminals.close, name="terminals")
        turn_ends(active.task.turn, interrupted=active.reason is TurnAbortReason.INTERRUPTED)
        emitter.turn_ended(TurnStatus.INTERRUPTED, reason=active.reason)


def _keep_words(active: ActiveTask) -> None:
    """Record and show input that joined the turn too late for it: the next request has it."""
    turn, emitter = active.task.turn, active.emitter
    for turn_input in active.take_input():
        turn.services.state.transcript.record(emitter, turn_input.messages())
        if emitter.has_started and turn_input.is_shown:
            emitter.show(turn_input.item(turn.services.sources.new_id()), announced=False)


def _complete(active: ActiveTask, outcome: str | TurnError | None) -> None:
    turn = active.task.turn
    if isinstance(outcome, TurnError):
        turn_ends(turn, error=outcome if active.kind is TurnKind.REGULAR else None)
        turn.emitter.turn_ended(TurnStatus.FAILED, error=outcome)
    else:
        turn_ends(turn)
        turn.emitter.turn_ended(TurnStatus.COMPLETED, last_agent_message=outcome)


async def _outcome(active: ActiveTask) -> str | TurnError | None:
    """Run the task, and return the assistant's last message, or the error if the turn failed."""
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
