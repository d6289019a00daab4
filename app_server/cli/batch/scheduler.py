"""The order of tasks, and the effect of an attempt's end on its task. Pure: callers pass the time.

An attempt that has ended is a result, or is followed by another attempt after a delay, or has no effect because it was
interrupted. Tasks of one folder run one after another. When a worker dies, its running tasks run again.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from msgspec import Struct

from app_server.cli.batch.batch_tasks import Task
from app_server.cli.batch.worker_messages import Ended, Result, ResultError, WrongMessage

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
"""Delays before another attempt, in seconds. The delay doubles each time."""


class Running(Struct, frozen=True):
    task: Task
    worker: int


class Scheduler:
    """The tasks that have no result yet."""

    def __init__(
        self,
        tasks: Iterable[Task],
        key: Callable[[Task], str | None],
        *,
        retries: int,
        stop_after: int | None = None,
    ) -> None:
        """`key` returns the folder in which a task has to run alone. `stop_after` is the number of failures in a row
        that end the batch; None if there is no such limit.
        """
        self._key, self._retries, self._stop_after = key, retries, stop_after
        self._ready, self._delayed = deque[Task](), list[tuple[float, int, Task]]()
        self._behind: dict[str, deque[Task]] = {}
        """Tasks by folder that follow the one which is ready, delayed or running."""
        self.running: dict[str, Running] = {}
        self._failed: Counter[str] = Counter()
        self._in_row, self._order = 0, count()
        self.closed = False
        """Whether no more tasks are started."""
        for task in tasks:
            folder = key(task)
            if folder in self._behind:
                self._behind[folder].append(task)
                continue
            self._ready.append(task)
            if folder is not None:
                self._behind[folder] = deque()

    @property
    def over(self) -> bool:
        return not self.running and (self.closed or not (self._ready or self._delayed))

    @property
    def failing(self) -> bool:
        """Whether so many tasks failed in a row that the batch has to stop."""
        return self._stop_after is not None and self._in_row >= self._stop_after

    def next(self, worker: int, now: float) -> Task | None:
        """Return the next task for a worker, and mark it as running. None if no task may run now."""
        self._wake(now)
        if self.closed or not self._ready:
            return None
        task = self._ready.popleft()
        self.running[task.id] = Running(task, worker)
        return task

    def wakes_in(self, now: float) -> float:
        """Return the seconds until a delayed task may run."""
        self._wake(now)
        return self._delayed[0][0] - now if self._delayed else float("inf")

    def _wake(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.appendleft(heapq.heappop(self._delayed)[2])

    def require_running(self, worker: int, id: str) -> None:
        """Raise WrongMessage if the task is not running on this worker."""
        running = self.running.get(id)
        if running is None or running.worker != worker:
            raise WrongMessage("it speaks of a task that it was not given")

    def ended(self, ended: Ended, now: float) -> bool:
        """Handle the end of an attempt. Return whether it is the task's result."""
        task = self.running.pop(ended.result.id).task
        if ended.ending == "retry" and self._again(task, now):
            return False
        self._follow(task)
        if ended.ending in ("interrupted", "refused"):
            return False
        self._in_row = 0 if ended.result.status in ("completed", "overBudget") else self._in_row + 1
        return True

    def gone(self, worker: int, now: float) -> list[Result]:
        """Handle the death of a worker. Return the results of tasks whose workers died too often."""
        died = [self.running.pop(id).task for id, each in [*self.running.items()] if each.worker == worker]
        lost = [task for task in died if not self._again(task, now)]
        for task in lost:
            self._follow(task)
        self._in_row += len(lost)
        error = ResultError(f"the worker that ran this task died, and so did {self._retries} more")
        return [Result(id=task.id, status="lost", error=error, meta=task.meta) for task in lost]

    def _follow(self, task: Task) -> None:
        """Make the next task of the folder ready."""
        if behind := self._behind.get(self._key(task) or ""):
            self._ready.appendleft(behind.popleft())

    def _again(self, task: Task, now: float) -> bool:
        """Schedule the task again, if it may run again, and return whether it may. Tasks of its folder wait for it."""
        times = self._failed[task.id] = self._failed[task.id] + 1
        if times <= self._retries:
            delay = min(FIRST_DELAY * 2.0 ** (times - 1), LONGEST_DELAY)
            heapq.heappush(self._delayed, (now + delay, next(self._order), task))
        return times <= self._retries
