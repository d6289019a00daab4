"""What a session can be busy with. One task at a time; it ends by itself or is interrupted, and says so once."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Protocol

import anyio

from protocol.events.turn import TurnAbortReason
from protocol.ops import Submission
from protocol.records import dataclass
from protocol.responses import MessageItem


class SessionTask(Protocol):
    """Something that takes time. `run` is cancelled to interrupt it."""

    async def run(self, active: ActiveTask) -> str | None:
        """Returns the last thing the assistant said. A CoreError becomes an error event."""
        ...

    def interrupted(self) -> None:
        """Last words, after everything of the task has ended; says nothing of the interruption itself."""
        ...


class NothingToDo:
    """A turn in which the user said nothing: it only ends."""

    async def run(self, active: ActiveTask) -> str | None:
        return None

    def interrupted(self) -> None:
        pass


class Joins(Enum):
    """What becomes of a user's words that arrive while the task runs."""

    THIS_TURN = "this turn"
    NEXT_TURN = "next turn"


@dataclass(slots=True, kw_only=True)
class ActiveTask:
    """The task under way."""

    id: str
    task: SessionTask
    joins: Joins
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    reason: TurnAbortReason = TurnAbortReason.INTERRUPTED
    ending: bool = False
    postponed: list[Submission] = field(default_factory=list)
    """Operations that wait for the task's end."""
    _input: list[tuple[Submission, MessageItem]] = field(default_factory=list)

    def add_input(self, submission: Submission, message: MessageItem) -> None:
        """The user's words join the turn, ahead of its next request to the model."""
        self._input.append((submission, message))

    def take_input(self) -> list[MessageItem]:
        taken, self._input = self._input, []
        return [message for _, message in taken]

    def take_leftover(self) -> list[Submission]:
        """Operations whose words came too late for this turn: each begins one of its own."""
        taken, self._input = self._input, []
        return [submission for submission, _ in taken]

    def interrupt(self, reason: TurnAbortReason) -> None:
        if not self.ending:
            self.ending, self.reason = True, reason
            self.scope.cancel()
