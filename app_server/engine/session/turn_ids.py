"""The interface to a session's turns: begin a turn, join the current one, end one; and to its goal, which clients set
and clear, and for which turns begin.

This module decides whether input joins a turn, by one rule for all APIs. It decides at submission, without an await in
between, and accounts for the commands that are carried out before the input.
"""

from __future__ import annotations

from app_server.engine.client_context import ClientContext
from app_server.engine.session import session_commands
from app_server.engine.session.goal_turns import GOAL_OPERATION
from app_server.engine.session.goals import GoalChange
from app_server.engine.session.tasks import ActiveTask, OperationQueue, PendingOperation, TaskRunner
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.engine.events import Goal, GoalCleared, GoalUpdated, TurnKind
from app_server_protocol.engine.thread_settings import UNCHANGED
from app_server_protocol.values import replace


class TurnControl:
    """The current turn, and the turns that were requested and have not begun."""

    def __init__(self, queue: OperationQueue, tasks: TaskRunner) -> None:
        self._queue, self.tasks = queue, tasks

    @property
    def current_id(self) -> str | None:
        """The id of the current turn, or else of the first that was requested and has not begun; None if there is
        neither.
        """
        active = self.tasks.active
        if active is not None and not active.ending:
            return active.turn_id
        return next((pending.turn_id for pending in self._turns_to_come()), None)

    @property
    def any_to_come(self) -> bool:
        """Whether a turn was requested and has not begun."""
        return bool(self._turns_to_come())

    def start(self, id: str, request: session_commands.StartTurn, caller: ClientContext | None = None) -> str:
        """Begin a turn for this client, or join the last turn that accepts input, so that no input overtakes another;
        return the turn's id.

        Raises TurnNotSteerable if the client wants the id of its input's turn and the current turn accepts no input.
        """
        turn_input, named = request.turn_input, request.wishes.names_turn
        joinable = self._joinable(named=named)
        if not joinable or (turn_input is None and named):
            return self._queue.submit(id, request, caller).turn_id
        turn = joinable[-1]
        self._queue.submit(id, session_commands.ChangeSettings(request.change))
        if turn_input is not None:
            late = None if named else self._queue.accept(id, replace(request, change=UNCHANGED), caller)
            turn.join(turn_input, late)
        return turn.turn_id

    def steer(self, expected_turn_id: str, turn_input: TurnInput) -> str:
        """Add input to the current turn, which the client names. Raises NoActiveTurn, OtherTurnActive and
        TurnNotSteerable.
        """
        joinable = self._joinable(named=True)
        if not joinable:
            raise session_commands.NoActiveTurn("no active turn to steer")
        turn = joinable[0]
        found = turn.turn_id
        if found != expected_turn_id:
            raise session_commands.OtherTurnActive(expected_turn_id, found)
        turn.join(turn_input)
        return found

    def interrupt(self, id: str, turn_id: str | None) -> None:
        """End the current turn or a requested one, without waiting for that; None or "" selects the first of them.
        Raises NoActiveTurn and OtherTurnActive.
        """
        current = self.current_id
        if not turn_id or (turn_id != current and all(each.turn_id != turn_id for each in self._to_come())):
            if current is None:
                raise session_commands.NoActiveTurn("no active turn to interrupt")
            if turn_id:
                raise session_commands.OtherTurnActive(turn_id, current)
        self._queue.submit(id, session_commands.Interrupt(turn_id or current))

    def _to_come(self) -> list[PendingOperation]:
        """Return the operations that are not carried out yet, in their order."""
        active, performing = self.tasks.active, self._queue.performing
        begun = active.turn_id if active is not None else None
        return [
            *([performing] if performing is not None and performing.turn_id != begun else []),
            *(active.postponed if active is not None else []),
            *self._queue,
        ]

    def _turns_to_come(self) -> list[PendingOperation]:
        """Return the pending operations that begin a turn, without those that were interrupted while they waited."""
        to_come = (pending for pending in self._to_come() if not pending.interrupted)
        return [pending for pending in to_come if isinstance(pending.command, session_commands.BEGINS_TURN)]

    def _joinable(self, *, named: bool) -> list[ActiveTask | PendingOperation]:
        """Return the turns that accept input now, in their order: those that no pending operation ends before the
        input.
        """
        active = self.tasks.active
        turns: list[ActiveTask | PendingOperation] = []
        if active is not None and not active.ending:
            if named and active.kind in (TurnKind.COMPACT, TurnKind.REVIEW):
                raise session_commands.TurnNotSteerable(active.kind)
            if active.takes_input:
                turns = [active]
        for pending in self._to_come():
            match pending.command:
                case _ if pending.interrupted:
                    pass  # it was interrupted before this input
                case session_commands.StartTurn():
                    turns.append(pending)
                case session_commands.Compact() | session_commands.Review() if named:
                    compacts = isinstance(pending.command, session_commands.Compact)
                    raise session_commands.TurnNotSteerable(TurnKind.COMPACT if compacts else TurnKind.REVIEW)
                case session_commands.Review():
                    turns = [pending]
                case (
                    session_commands.Compact()
                    | session_commands.RunShell(confined=True)
                    | session_commands.Interrupt(turn_id=None)
                ):
                    turns = []
                case session_commands.Interrupt(turn_id=ended):
                    turns = [turn for turn in turns if turn.turn_id != ended]
                case _:
                    pass
        return turns


class SessionGoal:
    """The goal that the conversation works for by itself."""

    def __init__(self, queue: OperationQueue, tasks: TaskRunner) -> None:
        self._queue, self._tasks = queue, tasks
        self._services, self._goals = tasks.services, tasks.services.state.goals
        self._turns, self._watched = 0, True

    def watch(self, watched: bool) -> None:
        """Set whether a client watches the conversation. Turns begin for the goal only then; a waiting one
        begins now.
        """
        self._watched = watched
        self.request_turn()

    def set(self, change: GoalChange) -> Goal:
        """Change the goal; if the conversation is idle, a turn begins for it. Raises GoalRefused and NoGoal."""
        goal = self._goals.set(change, int(self._services.sources.wall_clock()))
        self._services.outbox.emit("", GoalUpdated(goal))
        self.request_turn()
        return goal

    def clear(self) -> bool:
        """Remove the goal. Return whether there was one."""
        cleared = self._goals.clear()
        if cleared:
            self._services.outbox.emit("", GoalCleared())
        return cleared

    def request_turn(self) -> None:
        """Request a turn for the goal if the conversation is idle; it begins after all operations submitted before."""
        if self._watched and self._goals.wants_turn and self._tasks.active is None and not self._queue.closed:
            self._turns += 1
            self._queue.submit(f"{GOAL_OPERATION}{self._turns}", session_commands.ContinueGoal())
