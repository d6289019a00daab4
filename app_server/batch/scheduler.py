"""Which task runs next, and what becomes of one whose attempt has ended: a result, another attempt after a wait, or
nothing, because it was interrupted. Pure: whoever calls says the time.

Tasks of one folder run one after another. A worker that dies takes its running tasks with it, and they run again.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from msgspec import Struct

from app_server.batch.messages import Ended, Result, ResultError, WrongMessage
from app_server.batch.tasks import Task

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
"""Seconds before another attempt: twice as long each time."""


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
        """`key` names the folder in which a task runs alone. `stop_after`: so many failures in a row end the batch."""
        self._key, self._retries, self._stop_after = key, retries, stop_after
        self._ready, self._delayed = deque[Task](), list[tuple[float, int, Task]]()
        self._behind: dict[str, deque[Task]] = {}
        """By folder, the tasks that follow the one which is ready, delayed or running."""
        self.running: dict[str, Running] = {}
        self._failed: Counter[str] = Counter()
        self._in_row, self._order = 0, count()
        self.closed = False
        """Nothing new is started."""
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
        """Whether so many tasks failed in a row that the batch is to stop."""
        return self._stop_after is not None and self._in_row >= self._stop_after

    def next(self, worker: int, now: float) -> Task | None:
        """Return a task for a worker, which runs from now on; None if none may run now."""
        self._wake(now)
        if self.closed or not self._ready:
            return None
        task = self._ready.popleft()
        self.running[task.id] = Running(task, worker)
        return task

    def wakes_in(self, now: float) -> float:
        """Return the seconds until a task may run that waits for its next attempt."""
        self._wake(now)
        return self._delayed[0][0] - now if self._delayed else float("inf")

    def _wake(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.appendleft(heapq.heappop(self._delayed)[2])

    def require_running(self, worker: int, id: str) -> None:
        """Raises WrongMessage where it is not a task that the worker runs."""
        running = self.running.get(id)
        if running is None or running.worker != worker:
            raise WrongMessage("it speaks of a task that it was not given")

    def ended(self, ended: Ended, now: float) -> bool:
        """Take the end of an attempt. Returns whether it is the task's result."""
        task = self.running.pop(ended.result.id).task
        if ended.ending == "retry" and self._again(task, now):
            return False
        self._follow(task)
        if ended.ending in ("interrupted", "refused"):
            return False
        self._in_row = 0 if ended.result.status in ("completed", "overBudget") else self._in_row + 1
        return True

    def gone(self, worker: int, now: float) -> list[Result]:
        """Take the death of a worker. Returns the results of tasks whose workers died too often."""
        died = [self.running.pop(id).task for id, each in [*self.running.items()] if each.worker == worker]
        lost = [task for task in died if not self._again(task, now)]
        for task in lost:
            self._follow(task)
        self._in_row += len(lost)
        error = ResultError(f"the worker that ran this task died, and so did {self._retries} more")
        return [Result(id=task.id, status="lost", error=error, meta=task.meta) for task in lost]

    def _follow(self, task: Task) -> None:
        """Make the next task of a folder ready."""
        if behind := self._behind.get(self._key(task) or ""):
            self._ready.appendleft(behind.popleft())

    def _again(self, task: Task, now: float) -> bool:
        """Have the task run again, if it may; those of its folder wait for that."""
        times = self._failed[task.id] = self._failed[task.id] + 1
        if times <= self._retries:
            delay = min(FIRST_DELAY * 2.0 ** (times - 1), LONGEST_DELAY)
            heapq.heappush(self._delayed, (now + delay, next(self._order), task))
        return times <= self._retries
