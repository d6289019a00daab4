"""The actor: operations go in, events come out, one task runs at a time.

Owns the order of operations and the life of tasks. What an operation means is in the handlers below; what a task
does is the task's. Nothing here knows of the wire.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from app_server.core.errors import CoreError
from app_server.core.session.operations import perform, remember
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask, Joins, SessionTask
from app_server.core.threads import run_in_thread
from app_server.core.turn.coalesce import SessionEvent
from app_server.core.turn.transcript import StoredTranscript
from protocol.events.notices import ErrorEvent, ShutdownCompleteEvent, WarningEvent
from protocol.events.turn import TaskCompleteEvent, TurnAbortedEvent, TurnAbortReason
from protocol.ops import InterruptOp, Op, ShutdownOp, Submission
from protocol.responses import ResponseItem

log = logging.getLogger(__name__)


class Session:
    """One conversation, alive."""

    def __init__(self, services: Services, state: SessionState, close: Callable[[], None]) -> None:
        self.services, self.state = services, state
        self._close = close
        self._queue: deque[Submission] = deque()
        self._submitted = anyio.Event()
        self._active: ActiveTask | None = None
        self._group: TaskGroup | None = None
        self.ended = anyio.Event()

    # --- from outside
    def submit(self, id: str, op: Op) -> None:
        """Queue an operation. Its events carry `id`, which the caller makes and uses once. Raises CoreError."""
        if self.ended.is_set():
            raise CoreError("the conversation has ended")
        self._queue.append(Submission(id=id, op=op))
        self._submitted.set()

    async def events(self) -> list[SessionEvent]:
        """The events since the last call, waiting for the first; empty once the session has ended."""
        return await self.services.outbox.take()

    def give_back(self, events: Sequence[SessionEvent]) -> None:
        """Events that were taken and that nobody wants any more; they come first the next time."""
        self.services.outbox.give_back(events)

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
                    group.start_soon(self.services.mcp.run, name="mcp")
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
        StoredTranscript(self.state.history, self.services.outbox).record(id, items)
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

    async def _operate(self, submission: Submission) -> None:
        try:
            await perform(self, submission.id, submission.op)
        except CoreError as error:
            self.services.outbox.emit(submission.id, ErrorEvent(message=str(error)))
        except Exception as error:
            log.exception("operation %s", submission.op.type)
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
    async def start(self, id: str, task: SessionTask, joins: Joins = Joins.NEXT_TURN) -> None:
        """Begin a task; one that runs is ended first, as replaced."""
        await self.interrupt(TurnAbortReason.REPLACED)
        assert self._group is not None
        active = self._active = ActiveTask(id=id, task=task, joins=joins)
        self._group.start_soon(self._run_task, active, name=f"task {id}")

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
        completed, last = False, None
        try:
            with active.scope:
                last = await self._result(active)
                completed = True
        finally:
            # No await from here on: nothing may come between the task's end and the word of it.
            waiting = active.postponed
            if completed:
                outbox.emit(active.id, TaskCompleteEvent(last_agent_message=last))
                waiting += active.take_leftover()
            else:
                self.background(self.services.terminals.close, name="terminals")
                active.task.interrupted()
                outbox.emit(active.id, TurnAbortedEvent(reason=active.reason))
            for message in active.take_input():
                remember(self, active.id, message)
            self._queue.extendleft(reversed(waiting))
            self._submitted.set()
            self._active = None
            outbox.store()  # whoever waits for the end says so only after the word of it
            active.ended.set()
        self.background(outbox.flush, name="flush")

    async def _result(self, active: ActiveTask) -> str | None:
        """What the task says; what it raises is told as an error event."""
        try:
            return await active.task.run(active)
        except* CoreError as core_errors:
            message = str(_first(core_errors))
        except* Exception as errors:
            log.error("a task failed", exc_info=errors)
            message = f"internal error: {type(_first(errors)).__name__}; the log has the details"
        self.services.outbox.emit(active.id, ErrorEvent(message=message))
        return None


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
