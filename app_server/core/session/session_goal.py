"""The goal of one conversation, as clients set, read and clear it; and the turns that begin for it."""

from __future__ import annotations

from app_server.core.goals import GoalChange
from app_server.core.session.goal_turns import GOAL_OPERATION
from app_server.core.session.operation_queue import OperationQueue
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.task_runner import TaskRunner
from app_server.core.session.turn_requests import ContinueGoal
from protocol.engine.events import Goal, GoalCleared, GoalUpdated


class SessionGoal:
    def __init__(
        self, services: Services, state: SessionState, queue: OperationQueue, tasks: TaskRunner
    ) -> None:
        self._services, self._goals, self._queue, self._tasks = services, state.goals, queue, tasks
        self._turns = 0

    @property
    def current(self) -> Goal | None:
        return self._goals.goal

    def set(self, change: GoalChange) -> Goal:
        """Where nothing runs, a turn begins for it. Raises GoalRefused and NoGoal."""
        goal = self._goals.set(change, self._services.sources.seconds())
        self._services.outbox.emit("", GoalUpdated(goal))
        self.request_turn()
        return goal

    def clear(self) -> bool:
        """Whether there was one."""
        cleared = self._goals.clear()
        if cleared:
            self._services.outbox.emit("", GoalCleared())
        return cleared

    def request_turn(self) -> None:
        """Where nothing runs: a turn, which begins once everything that was submitted before is done."""
        if self._goals.wants_turn and self._tasks.active is None and not self._queue.closed:
            self._turns += 1
            self._queue.submit(f"{GOAL_OPERATION}{self._turns}", ContinueGoal())
