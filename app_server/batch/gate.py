"""The worker's gate in front of the requests to models: the coordinator says when each may be sent. Waiting for that is
nobody's time limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

import anyio

from app_server.batch.messages import Ask, FromWorker, Over, Pass, TaskUsage
from app_server.batch.tasks import Task
from protocol.events.turn import TokenUsage

if TYPE_CHECKING:
    from app_server.core.model.request_gate import GatedRequest

BYTES_PER_TOKEN: Final = 4
Stop = Literal["timedOut", "overBudget", "interrupted"]


class RunningTask:
    """One attempt while it runs: its clock, what it has used, and why it is to end."""

    def __init__(self, task: Task, seconds: float) -> None:
        self.task, self.seconds = task, task.budget.seconds or seconds
        self.whole, self.scope = anyio.CancelScope(), anyio.CancelScope()
        """Of the attempt; and of its work, after which its place is looked at and cleared."""
        self.stopped: Stop | None = None
        self.why = ""
        self.reached = False
        """A request was sent."""
        self.requests = self.tokens = 0
        """What counts for the task's budget; requests that a provider refused for a while do not."""
        self.refused: int | None = None
        """The status with which the provider refused the last request."""
        self.queued = 0.0
        self._clock, self._left, self._waits = anyio.current_time, self.seconds, 0

    def start_clock(self) -> None:
        self.scope.deadline = self._clock() + self._left

    def stop(self, stopped: Stop, why: str) -> None:
        """End the attempt; the first reason counts."""
        if self.stopped is None:
            self.stopped, self.why = stopped, why
            (self.whole if stopped == "interrupted" else self.scope).cancel()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the clock while the block runs."""
        since = self._clock()
        if not self._waits:
            self._left, self.scope.deadline = self.scope.deadline - since, float("inf")
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self.queued += self._clock() - since
                self.start_clock()

    def over_budget(self) -> bool:
        """Stop where the task's own budget is used up."""
        budget = self.task.budget
        for name, used, most in (
            ("requests", self.requests, budget.requests),
            ("tokens", self.tokens, budget.tokens),
        ):
            if most is not None and used >= most:
                self.stop("overBudget", f"the task's budget of {most} {name} is used up")
        return self.stopped is not None


class WorkerGate:
    """The `RequestGate` of a worker's server."""

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self._send, self._numbers = send, count()
        self._running: dict[str, RunningTask] = {}
        self._waiting: dict[int, tuple[RunningTask, anyio.Event]] = {}

    @contextmanager
    def following(self, thread_id: str, running: RunningTask) -> Iterator[None]:
        """Count the requests of a thread as those of a task."""
        self._running[thread_id] = running
        try:
            yield
        finally:
            del self._running[thread_id]

    def told(self, message: Pass) -> None:
        """Take what the coordinator says of a request, which may not wait any more."""
        if (found := self._waiting.get(message.number)) is not None:
            running, passes = found
            if message.never:
                running.stop("overBudget", "a budget of the whole batch is used up")
            else:
                passes.set()

    @asynccontextmanager
    async def passing(self, request: GatedRequest) -> AsyncIterator[None]:
        running = self._running.get(request.conversation_id)
        if running is None or running.over_budget():
            await anyio.sleep_forever()  # its turn is being interrupted
            return
        number, passes = next(self._numbers), anyio.Event()
        self._waiting[number] = running, passes
        size, first = request.size // BYTES_PER_TOKEN, not running.reached
        self._send(Ask(number=number, id=running.task.id, size=size, first=first))
        try:
            with running.waiting():
                await passes.wait()
            running.reached = True
            yield
        finally:
            del self._waiting[number]
            used = request.usage or TokenUsage()
            usage = TaskUsage(used.input_tokens, used.cached_input_tokens, used.output_tokens, requests=1)
            running.requests += not request.limited
            running.tokens += usage.total
            running.refused = request.status
            limited, after = request.limited, request.retry_after
            self._send(
                Over(number=number, model=request.model, usage=usage, limited=limited, retry_after=after)
            )
