"""What is asked of a session's turns from outside: by their ids, for APIs that follow them: begin one, join the one
that runs, end one; and by its goal, as clients set, read and clear it, for which turns begin.

Whether words join a turn is decided here, when they are submitted, and not when the operation is carried out. `Actor`
is the session as operations see it.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.core.goals import GoalChange
from app_server.core.session.goal_turns import GOAL_OPERATION
from app_server.core.session.services import Services, SessionState
from app_server.core.session.task_runner import TaskRunner
from app_server.core.session.tasks import ActiveTask, InputPolicy, OperationQueue, PendingOperation
from app_server.core.session.turn_requests import (
    ChangeSettings,
    ContinueGoal,
    InterruptTurn,
    NoActiveTurn,
    OtherTurnActive,
    RunShell,
    StartTurn,
    TurnNotSteerable,
)
from app_server.core.turn.items import UserWords
from protocol.engine.events import Goal, GoalCleared, GoalUpdated, TurnKind
from protocol.ops import CompactOp, ReviewOp

BEGINS_TURN = (StartTurn, CompactOp, ReviewOp, RunShell)
"""Operations of APIs that follow turns which begin one."""


class TurnControl:
    """The turn that runs, and those that were requested and have not begun."""

    def __init__(self, queue: OperationQueue, tasks: TaskRunner) -> None:
        self._queue, self._tasks = queue, tasks

    @property
    def current_id(self) -> str | None:
        """The turn that runs, or the first that was requested and has not begun."""
        active = self._tasks.active
        if active is not None and not active.ending:
            return active.emitter.turn_id
        return next((pending.turn_id for pending in self._to_come()), None)

    @property
    def any_to_come(self) -> bool:
        """Whether a turn was requested that has not begun."""
        return bool(self._to_come())

    def start(self, id: str, request: StartTurn) -> tuple[str, bool]:
        """Begin a turn, or join the one that runs or is about to: the turn's id, and whether it was joined.

        Raises TurnNotSteerable if a turn runs that takes no words.
        """
        turn = self._joinable()
        if turn is not None and request.words is not None:
            turn.steered.append(request.words)
            self._queue.submit(id, ChangeSettings(request.change))
            return _id_of(turn), True
        return self._queue.submit(id, request), False

    def steer(self, expected_turn_id: str, words: UserWords) -> str:
        """Words for the turn that runs, which the client names. Raises CoreErrors of `turn_requests`."""
        turn = self._joinable()
        if turn is None:
            raise NoActiveTurn("no active turn to steer")
        found = _id_of(turn)
        if found != expected_turn_id:
            raise OtherTurnActive(expected_turn_id, found)
        turn.steered.append(words)
        return found

    def interrupt(self, id: str, turn_id: str | None) -> None:
        """End the turn that runs or one that is to come; None or "" for whichever is first. Does not wait for it."""
        current = self.current_id
        if current is None:
            raise NoActiveTurn("no active turn to interrupt")
        if turn_id and turn_id != current and all(each.turn_id != turn_id for each in self._to_come()):
            raise OtherTurnActive(turn_id, current)
        self._queue.submit(id, InterruptTurn(turn_id or current))

    def _to_come(self) -> list[PendingOperation]:
        """Operations that begin turns and have not begun them, in their order."""
        active, performing = self._tasks.active, self._queue.performing
        begun = active.emitter.turn_id if active is not None else None
        return [
            pending
            for pending in (
                *([performing] if performing is not None and performing.turn_id != begun else []),
                *(active.postponed if active is not None else []),
                *self._queue,
            )
            if isinstance(pending.op, BEGINS_TURN)
        ]

    def _joinable(self) -> ActiveTask | PendingOperation | None:
        to_come = self._to_come()
        for pending in to_come:  # these end what runs
            if isinstance(pending.op, CompactOp):
                raise TurnNotSteerable(TurnKind.COMPACT)
            if isinstance(pending.op, ReviewOp):
                raise TurnNotSteerable(TurnKind.REVIEW)
        active = self._tasks.active
        if active is not None and not active.ending:
            if active.kind in (TurnKind.COMPACT, TurnKind.REVIEW):
                raise TurnNotSteerable(active.kind)
            if active.kind is TurnKind.REGULAR and active.input_policy is InputPolicy.STEER:
                return active
        return next((pending for pending in to_come if isinstance(pending.op, StartTurn)), None)


def _id_of(turn: ActiveTask | PendingOperation) -> str:
    return turn.emitter.turn_id if isinstance(turn, ActiveTask) else turn.turn_id


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


class Actor(Struct, frozen=True):
    """The session, as far as operations need it."""

    services: Services
    state: SessionState
    queue: OperationQueue
    tasks: TaskRunner
    turns: TurnControl
