"""The queue of a session's operations: submitted commands, each with the ids that its events carry."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.client_context import ClientContext
from app_server.engine.session.session_commands import Command
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.turn_items import TurnInput


class PendingOperation(Struct, frozen=True):
    """A submitted command with its id, and the id of the turn that it begins, if it begins one."""

    id: str
    command: Command
    turn_id: str
    steered: list[TurnInput] = msgspec.field(default_factory=list)
    """Inputs that joined the turn before it began."""
    interrupted: bool = False
    """Whether the turn was interrupted while it waited for another one; it then ends as soon as it begins."""
    position: int = 0
    """Number in the order in which operations were submitted; a postponed operation keeps it."""
    caller: ClientContext | None = None
    """Client that submitted the command; None if the session itself did."""

    def join(self, turn_input: TurnInput, late: PendingOperation | None = None) -> None:
        """Add input to the turn that this operation begins, so that the input is never late."""
        self.steered.append(turn_input)


class OperationQueue:
    """The queue of a session's operations, with many producers and one consumer."""

    def __init__(self, new_turn_id: Callable[[], str]) -> None:
        self._new_turn_id = new_turn_id
        self.new_id = map(str, itertools.count()).__next__
        """Function that returns the id of the next operation of a client. A session that replaces another one takes its
        function, so that a client that stays subscribed sees no id twice.
        """
        self._waiting: deque[PendingOperation] = deque()
        self._submissions = 0
        self._some = anyio.Event()
        self.closed = False
        self.performing: PendingOperation | None = None
        """Operation that was taken and is being carried out; None if there is none."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingOperation]:
        """Iterate over the waiting operations, without the one that is being carried out."""
        return iter(self._waiting)

    def accept(
        self, command: Command, caller: ClientContext | None = None, *, id: str | None = None
    ) -> PendingOperation:
        """Assign a command its position without adding it to the queue: it may be put back later.

        Its events carry `id`; None if that is the next one. Raises CoreError once the queue is closed.
        """
        if self.closed:
            raise CoreError("the conversation has ended")
        self._submissions += 1
        id = self.new_id() if id is None else id
        return PendingOperation(id, command, self._new_turn_id(), position=self._submissions, caller=caller)

    def submit(
        self, command: Command, caller: ClientContext | None = None, *, id: str | None = None
    ) -> PendingOperation:
        """Add a command at the end. Raises CoreError once the queue is closed."""
        pending = self.accept(command, caller, id=id)
        self._waiting.append(pending)
        self._some.set()
        return pending

    def put_back(self, pending: PendingOperation) -> None:
        """Put an operation back into the queue, before all operations that were submitted after it."""
        later = (n for n, each in enumerate(self._waiting) if each.position > pending.position)
        self._waiting.insert(next(later, len(self._waiting)), pending)
        self._some.set()

    async def take(self) -> PendingOperation:
        """Wait for the first operation and return it; it is `performing` until `done` is called."""
        while not self._waiting:
            await self._some.wait()
            self._some = anyio.Event()
        self.performing = self._waiting.popleft()
        return self.performing

    def done(self) -> None:
        self.performing = None

    def close(self) -> None:
        self.closed = True
