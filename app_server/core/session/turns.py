"""What is asked of a session's turns from outside: begin one, join the one that runs, end one; and of its goal, which
clients set and clear, and for which turns begin.

Whether words join a turn is decided here, for all APIs by one rule, when they are submitted: with nothing to wait for
in between, and with what is to be carried out before them taken into account.
"""

from __future__ import annotations

from app_server.core.caller import Caller
from app_server.core.goals import GoalChange
from app_server.core.session import commands
from app_server.core.session.goal_turns import GOAL_OPERATION
from app_server.core.session.tasks import ActiveTask, OperationQueue, PendingOperation, TaskRunner
from app_server.core.turn.items import UserWords
from app_server_protocol.engine.events import Goal, GoalCleared, GoalUpdated, TurnKind
from app_server_protocol.engine.settings import UNCHANGED
from app_server_protocol.structs import replace


class TurnControl:
    """The turn that runs, and those that were requested and have not begun."""

    def __init__(self, queue: OperationQueue, tasks: TaskRunner) -> None:
        self._queue, self.tasks = queue, tasks

    @property
    def current_id(self) -> str | None:
        """Return the turn that runs, or the first that was requested and has not begun."""
        active = self.tasks.active
        if active is not None and not active.ending:
            return active.turn_id
        return next((pending.turn_id for pending in self._turns_to_come()), None)

    @property
    def any_to_come(self) -> bool:
        """Whether a turn was requested that has not begun."""
        return bool(self._turns_to_come())

    def start(self, id: str, request: commands.StartTurn, caller: Caller | None = None) -> str:
        """Begin a turn for this client, or join the last that takes words, so that none overtake others; returns the
        turn's id.

        Raises TurnNotSteerable if the client is to be told the turn of its words and one runs that takes none.
        """
        words, named = request.words, request.wishes.names_turn
        joinable = self._joinable(named=named)
        if not joinable or (words is None and named):
            return self._queue.submit(id, request, caller).turn_id
        turn = joinable[-1]
        self._queue.submit(id, commands.ChangeSettings(request.change))
        if words is not None:
            late = None if named else self._queue.accept(id, replace(request, change=UNCHANGED), caller)
            turn.join(words, late)
        return turn.turn_id

    def steer(self, expected_turn_id: str, words: UserWords) -> str:
        """Add words to the turn that runs, which the client names. Raises CoreErrors of `commands`."""
        joinable = self._joinable(named=True)
        if not joinable:
            raise commands.NoActiveTurn("no active turn to steer")
        turn = joinable[0]
        found = turn.turn_id
        if found != expected_turn_id:
            raise commands.OtherTurnActive(expected_turn_id, found)
        turn.join(words)
        return found

    def interrupt(self, id: str, turn_id: str | None) -> None:
        """End the turn that runs or one that is to come; None or "" for whichever is first. Does not wait for it."""
        current = self.current_id
        if not turn_id or (turn_id != current and all(each.turn_id != turn_id for each in self._to_come())):
            if current is None:
                raise commands.NoActiveTurn("no active turn to interrupt")
            if turn_id:
                raise commands.OtherTurnActive(turn_id, current)
        self._queue.submit(id, commands.Interrupt(turn_id or current))

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
        """Return what begins a turn, without what was interrupted while it waited."""
        to_come = (pending for pending in self._to_come() if not pending.interrupted)
        return [pending for pending in to_come if isinstance(pending.command, commands.BEGINS_TURN)]

    def _joinable(self, *, named: bool) -> list[ActiveTask | PendingOperation]:
        """Return the turns that take words now, in their order: those that nothing ends before words said now."""
        active = self.tasks.active
        turns: list[ActiveTask | PendingOperation] = []
        if active is not None and not active.ending:
            if named and active.kind in (TurnKind.COMPACT, TurnKind.REVIEW):
                raise commands.TurnNotSteerable(active.kind)
            if active.takes_words:
                turns = [active]
        for pending in self._to_come():
            match pending.command:
                case _ if pending.interrupted:
                    pass  # it was interrupted before these words were said
                case commands.StartTurn():
                    turns.append(pending)
                case commands.Compact() | commands.Review() if named:
                    compacts = isinstance(pending.command, commands.Compact)
                    raise commands.TurnNotSteerable(TurnKind.COMPACT if compacts else TurnKind.REVIEW)
                case commands.Review():
                    turns = [pending]
                case commands.Compact() | commands.RunShell(confined=True) | commands.Interrupt(turn_id=None):
                    turns = []
                case commands.Interrupt(turn_id=ended):
                    turns = [turn for turn in turns if turn.turn_id != ended]
                case _:
                    pass
        return turns


class SessionGoal:
    """Goal that the conversation works for by itself."""

    def __init__(self, queue: OperationQueue, tasks: TaskRunner) -> None:
        self._queue, self._tasks = queue, tasks
        self._services, self._goals = tasks.services, tasks.services.state.goals
        self._turns, self._watched = 0, True

    def watch(self, watched: bool) -> None:
        """Let turns begin for the goal only while somebody watches; one begins now where it had to wait for that."""
        self._watched = watched
        self.request_turn()

    def set(self, change: GoalChange) -> Goal:
        """Change the goal; where nothing runs, a turn begins for it. Raises GoalRefused and NoGoal."""
        goal = self._goals.set(change, int(self._services.sources.wall_clock()))
        self._services.outbox.emit("", GoalUpdated(goal))
        self.request_turn()
        return goal

    def clear(self) -> bool:
        """Remove the goal; False where there was none."""
        cleared = self._goals.clear()
        if cleared:
            self._services.outbox.emit("", GoalCleared())
        return cleared

    def request_turn(self) -> None:
        """Ask for a turn where nothing runs; it begins once everything that was submitted before is done."""
        if self._watched and self._goals.wants_turn and self._tasks.active is None and not self._queue.closed:
            self._turns += 1
            self._queue.submit(f"{GOAL_OPERATION}{self._turns}", commands.ContinueGoal())
