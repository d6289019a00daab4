"""The interface to a session's turns: begin a turn, join the current one, end one; and to its goal, which clients set
and clear, and for which turns begin.

This module decides whether input joins a turn, by one rule for all APIs. It decides at submission, without an await in
between, and accounts for the commands that are carried out before the input.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.engine.client_context import ClientContext, TurnCaller
from app_server.engine.context.history import message_text
from app_server.engine.session import session_commands
from app_server.engine.session.goal_turns import GOAL_OPERATION
from app_server.engine.session.goals import GoalChange
from app_server.engine.session.operation_queue import OperationQueue, PendingOperation
from app_server.engine.session.tasks import SessionTask, TaskRunner
from app_server.engine.telemetry.telemetry_events import NO_TELEMETRY
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.engine.events import Goal, GoalCleared, GoalUpdated, TurnKind
from app_server_protocol.engine.thread_settings import UNCHANGED
from app_server_protocol.values import replace


class OperationIds(Struct, frozen=True):
    """The ids that the events of a command carry."""

    operation: str
    turn: str
    """Id of the turn that the command begins or that its input joins, if it is about a turn."""


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

    def start(self, command: session_commands.StartTurn, caller: TurnCaller) -> OperationIds:
        """Begin a turn for this client, or join the last turn that accepts input, so that no input overtakes another.

        Raises TurnNotSteerable if the client wants the id of its input's turn and the current turn accepts no input.
        """
        turn_input, named = command.turn_input, command.wishes.names_turn
        joinable, id = self._joinable(named=named), self._queue.new_id()
        if not joinable or (turn_input is None and named):
            turn_id = self._queue.submit(command, caller.client, id=id).turn_id
        else:
            turn = joinable[-1]
            turn_id = turn.turn_id
            self._queue.submit(session_commands.ChangeSettings(command.change), id=id)
            if turn_input is not None:
                late = replace(command, change=UNCHANGED)
                turn.join(turn_input, None if named else self._queue.accept(late, caller.client, id=id))
        self._report(turn_input)
        return OperationIds(id, turn_id)

    def steer(self, expected_turn_id: str, turn_input: TurnInput) -> str:
        """Add input to the current turn, which the client names. Raises NoActiveTurn, OtherTurnActive and
        TurnNotSteerable.
        """
        joinable = self._joinable(named=True)
        if not joinable:
            raise session_commands.NoActiveTurn("no active turn to steer")
        turn = joinable[0]
        if turn.turn_id != expected_turn_id:
            raise session_commands.OtherTurnActive(expected_turn_id, turn.turn_id)
        turn.join(turn_input)
        self._report(turn_input)
        return expected_turn_id

    def interrupt(self, turn_id: str | None) -> None:
        """End the current turn or a requested one, without waiting for that; None or "" selects the first of them.
        Raises NoActiveTurn and OtherTurnActive.
        """
        current = self.current_id
        if not turn_id or (turn_id != current and all(each.turn_id != turn_id for each in self._to_come())):
            if current is None:
                raise session_commands.NoActiveTurn("no active turn to interrupt")
            if turn_id:
                raise session_commands.OtherTurnActive(turn_id, current)
        self._queue.submit(session_commands.Interrupt(turn_id or current))

    def _report(self, turn_input: TurnInput | None) -> None:
        telemetry = self.tasks.services.reports.telemetry
        if turn_input is not None and telemetry is not NO_TELEMETRY:
            telemetry.user_prompt(message_text(turn_input.message))

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

    def _joinable(self, *, named: bool) -> list[SessionTask | PendingOperation]:
        """Return the turns that accept input now, in their order: those that no pending operation ends before the
        input.
        """
        active = self.tasks.active
        turns: list[SessionTask | PendingOperation] = []
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

    def set(self, change: GoalChange, caller: TurnCaller) -> Goal:
        """Change the goal for a client; if the conversation is idle, a turn begins for it. Raises GoalRefused and
        NoGoal.
        """
        goal = self._goals.set(change, int(self._services.sources.wall_clock()))
        self._services.outbox.emit("", GoalUpdated(goal))
        self.request_turn(caller.client)
        return goal

    def clear(self) -> bool:
        """Remove the goal. Return whether there was one."""
        cleared = self._goals.clear()
        if cleared:
            self._services.outbox.emit("", GoalCleared())
        return cleared

    def request_turn(self, caller: ClientContext | None = None) -> None:
        """Request a turn for the goal if the conversation is idle; it begins after all operations submitted before.
        `caller` is the client that begins it; None if the session itself does.
        """
        if self._goals.goal is None or not (self._watched and self._goals.wants_turn):
            return
        if self._tasks.active is None and not self._queue.closed:
            self._turns += 1
            self._queue.submit(session_commands.ContinueGoal(), caller, id=f"{GOAL_OPERATION}{self._turns}")
