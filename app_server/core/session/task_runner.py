"""The one task that runs at a time: its begin, its end, and what becomes of everything that waited for it.

What a task does is the task's own. Which operation begins one is decided in `operations`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence

from anyio.abc import TaskGroup

from app_server.core.errors import CoreError
from app_server.core.session.goal_turns import turn_ends
from app_server.core.session.services import Services, SessionState
from app_server.core.session.tasks import (
    ActiveTask,
    InputPolicy,
    OperationQueue,
    PendingOperation,
    SessionTask,
)
from app_server.core.turn.emitter import OperationEmitter, TurnEmitter, turn_error
from app_server.core.turn.items import UserWords
from app_server.core.turn.transcript import StoredTranscript
from protocol.engine.errors import ErrorClass, TurnError
from protocol.engine.events import TurnKind, TurnStatus
from protocol.events.turn import TurnAbortReason

log = logging.getLogger(__name__)


class TaskRunner:
    """Runs the tasks of one session in the session's task group."""

    def __init__(
        self,
        services: Services,
        state: SessionState,
        queue: OperationQueue,
        task_ended: Callable[[], None],
    ) -> None:
        """`task_ended` is called after each task, once its end is emitted."""
        self._services, self._state, self._queue, self._task_ended = services, state, queue, task_ended
        self._group: TaskGroup | None = None
        self.active: ActiveTask | None = None

    def use(self, group: TaskGroup) -> None:
        """The task group of the session, before the first task."""
        self._group = group

    def started_turn(self) -> TurnEmitter | None:
        """The turn that runs and whose begin was emitted."""
        active = self.active
        return active.emitter if active is not None and active.emitter.has_started else None

    def emitter(self, pending: PendingOperation) -> TurnEmitter:
        """For the turn that the operation begins."""
        return TurnEmitter(
            self._services.outbox,
            pending.id,
            pending.turn_id,
            lambda: self._services.sources.now().timestamp(),
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
        active = self.active = ActiveTask(emitter=emitter, task=task, input_policy=input_policy)
        for words in steered:
            active.join(words)
        self._group.start_soon(self._run, active, name=f"task {active.id}")

    async def interrupt(self, reason: TurnAbortReason = TurnAbortReason.INTERRUPTED) -> None:
        """End the running task, if there is one; returns once it has ended."""
        if active := self.active:
            active.interrupt(reason)
            await active.ended.wait()

    async def interrupt_turn(self, turn_id: str) -> None:
        """End this turn, or drop it if it waits for the end of another; nothing happens if it has ended."""
        active = self.active
        if active is None:
            return
        if active.emitter.turn_id == turn_id:
            await self.interrupt()
            return
        for pending in [each for each in active.postponed if each.turn_id == turn_id]:
            active.postponed.remove(pending)
            self.emitter(pending).turn_ended(TurnStatus.INTERRUPTED, reason=TurnAbortReason.INTERRUPTED)

    def in_background(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        """Work for which no operation waits, and whose failure ends nothing."""

        async def guarded() -> None:
            try:
                await work()
            except Exception:
                log.exception("%s", name)

        assert self._group is not None
        self._group.start_soon(guarded, name=name)

    async def _run(self, active: ActiveTask) -> None:
        outbox = self._services.outbox
        outcome: str | TurnError | None = None
        completed = False
        try:
            with active.scope:
                outcome = await _outcome(active)
                completed = True
        finally:
            # No await from here on: nothing may come between the task's end and the event that reports it.
            waiting = active.postponed
            if completed:
                self._complete(active, outcome)
                waiting += active.drain_late()
            else:
                self._cut(active)
            for words in active.take_input():
                remember(self._services, self._state, active, words)
            for pending in waiting:
                self._queue.put_back(pending)
            self.active = None
            outbox.store()  # who waits for the end emits only after the event of it
            active.ended.set()
        self._task_ended()
        self.in_background(outbox.flush, name="flush")

    def _complete(self, active: ActiveTask, outcome: str | TurnError | None) -> None:
        services, state, emitter = self._services, self._state, active.emitter
        if isinstance(outcome, TurnError):
            failed = outcome if active.kind is TurnKind.REGULAR else None
            turn_ends(services, state, emitter, error=failed)
            emitter.turn_ended(TurnStatus.FAILED, error=outcome)
        else:
            turn_ends(services, state, emitter)
            emitter.turn_ended(TurnStatus.COMPLETED, last_agent_message=outcome)

    def _cut(self, active: ActiveTask) -> None:
        """It was interrupted: the commands of earlier turns end with it."""
        services, emitter = self._services, active.emitter
        active.task.interrupted()
        services.commands.terminals.cut_detached(emitter)
        self.in_background(services.commands.terminals.close, name="terminals")
        interrupted = active.reason is TurnAbortReason.INTERRUPTED
        turn_ends(services, self._state, emitter, interrupted=interrupted)
        emitter.turn_ended(TurnStatus.INTERRUPTED, reason=active.reason)


def remember(services: Services, state: SessionState, active: ActiveTask, words: UserWords) -> None:
    """Words that came too late for their turn: the next request carries them."""
    emitter = OperationEmitter(services.outbox, active.id)
    StoredTranscript(state.history, services.outbox).record(emitter, words.messages())


async def _outcome(active: ActiveTask) -> str | TurnError | None:
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
