"""The order of requests: those of one conversation run one after another, all others concurrently.

A lane is a queue with one task, which exists from its first job to the end of its last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

Job = Callable[[], Awaitable[None]]


class Lanes:
    """Starts jobs in a task group. Jobs must not raise."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._lanes: dict[str, deque[Job]] = {}
        self._running = 0

    @property
    def running(self) -> int:
        """Jobs started or waiting in a lane."""
        return self._running

    def start(self, job: Job, lane: str | None = None) -> None:
        self._running += 1
        if lane is None:
            self._group.start_soon(self._run_one, job)
        elif lane in self._lanes:
            self._lanes[lane].append(job)
        else:
            self._lanes[lane] = deque([job])
            self._group.start_soon(self._run_lane, lane)

    async def _run_one(self, job: Job) -> None:
        try:
            await job()
        finally:
            self._running -= 1

    async def _run_lane(self, lane: str) -> None:
        jobs = self._lanes[lane]
        try:
            while jobs:
                await self._run_one(jobs[0])
                jobs.popleft()
        finally:
            del self._lanes[lane]
