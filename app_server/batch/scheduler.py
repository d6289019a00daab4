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

from app_server.batch.messages import Ended, Result, ResultError
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
        self._ready = deque(tasks)
        self._key, self._retries, self._stop_after = key, retries, stop_after
        self._delayed: list[tuple[float, int, Task]] = []
        self._busy: set[str] = set()
        """Folders in which a task runs."""
        self._behind: dict[str, deque[Task]] = {}
        """Tasks that wait for such a folder."""
        self.running: dict[str, Running] = {}
        self._failed: Counter[str] = Counter()
        self._in_row, self._order = 0, count()
        self.closed = False
        """Nothing new is started."""

    @property
    def over(self) -> bool:
        waiting = self._ready or self._delayed or any(self._behind.values())
        return not self.running and (self.closed or not waiting)

    @property
    def failing(self) -> bool:
        """Whether so many tasks failed in a row that the batch is to stop."""
        return self._stop_after is not None and self._in_row >= self._stop_after

    def next(self, worker: int, now: float) -> Task | None:
        """Return a task for a worker, which runs from now on; None if none may run now."""
        self._wake(now)
        while self._ready and not self.closed:
            task = self._ready.popleft()
            key = self._key(task)
            if key is not None and key in self._busy:
                self._behind.setdefault(key, deque()).append(task)
                continue
            if key is not None:
                self._busy.add(key)
            self.running[task.id] = Running(task, worker)
            return task
        return None

    def wakes_in(self, now: float) -> float:
        """Return the seconds until a task may run that waits for its next attempt."""
        self._wake(now)
        return self._delayed[0][0] - now if self._delayed else float("inf")

    def _wake(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.appendleft(heapq.heappop(self._delayed)[2])

    def ended(self, ended: Ended, now: float) -> bool:
        """Take the end of an attempt. Returns whether it is the task's result."""
        task = self._freed(ended.result.id)
        if ended.ending in ("interrupted", "refused") or (ended.ending == "retry" and self._again(task, now)):
            return False
        self._in_row = 0 if ended.result.status in ("completed", "overBudget") else self._in_row + 1
        return True

    def gone(self, worker: int, now: float) -> list[Result]:
        """Take the death of a worker. Returns the results of tasks whose workers died too often."""
        lost = [self._freed(id) for id, each in list(self.running.items()) if each.worker == worker]
        final = [task for task in lost if not self._again(task, now)]
        self._in_row += len(final)
        error = ResultError(f"the worker that ran this task died, and so did {self._retries} more")
        return [Result(id=task.id, status="lost", error=error, meta=task.meta) for task in final]

    def _freed(self, id: str) -> Task:
        task = self.running.pop(id).task
        key = self._key(task)
        if key is not None:
            self._busy.remove(key)
            if behind := self._behind.get(key):
                self._ready.appendleft(behind.popleft())
        return task

    def _again(self, task: Task, now: float) -> bool:
        """Have the task run again, if it may."""
        times = self._failed[task.id] = self._failed[task.id] + 1
        if times > self._retries:
            return False
        delay = min(FIRST_DELAY * 2.0 ** (times - 1), LONGEST_DELAY)
        heapq.heappush(self._delayed, (now + delay, next(self._order), task))
        return True
