"""The events of one thread, given to all who want them: turns that are waited for, streams, questions about items.

Giving never waits; see `event_queue` for what happens to a slow consumer.
"""

from __future__ import annotations

from weakref import WeakSet

import anyio

from app_server.client.answering import ApprovalHandler
from app_server.client.event_queue import EventQueue
from app_server.client.events import ServerEvent, turn_of
from app_server.client.failures import ThreadClosed
from app_server.client.turn_progress import TurnProgress
from protocol.v2.item_events import ItemCompletedNotification, ItemStartedNotification
from protocol.v2.items import ThreadItem
from protocol.v2.turn import TurnCompletedNotification, TurnStartedNotification

ENDED_TURNS = 16
"""Turns whose ends are kept."""


class ComingTurn:
    """The next turn of a thread, for whoever causes one without learning its id."""

    def __init__(self) -> None:
        self._progress: TurnProgress | None = None
        self._error: Exception | None = None
        self._begun = anyio.Event()

    def begin(self, progress: TurnProgress) -> None:
        self._progress = progress
        self._begun.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._begun.set()

    async def wait(self) -> TurnProgress:
        """Raises what `fail` was given."""
        await self._begun.wait()
        if self._progress is None:
            raise self._error or RuntimeError("no turn")
        return self._progress


class ThreadFeed:
    """One thread that this client has opened. A stream that nobody holds any more is forgotten."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.on_approval: ApprovalHandler | None = None
        self.running_turn: str | None = None
        """The id of the turn that runs, as far as events and answers have shown."""
        self._turns: dict[str, TurnProgress] = {}
        self._all: WeakSet[EventQueue] = WeakSet()
        self._of_turn: dict[str, WeakSet[EventQueue]] = {}
        self._ended: dict[str, TurnProgress] = {}
        """The last turns that ended, without their items: for whoever asks for one a moment too late."""
        self._open_items: dict[str, ThreadItem] = {}
        self._coming: list[ComingTurn] = []

    def follow(self, turn_id: str, queue: EventQueue | None = None) -> TurnProgress:
        """Observe a turn from now on, until it ends."""
        if (ended := self._ended.get(turn_id)) is not None:
            return ended
        self.running_turn = turn_id
        progress = self._turns.setdefault(turn_id, TurnProgress(turn_id))
        if queue is not None:
            self._of_turn.setdefault(turn_id, WeakSet()).add(queue)
        return progress

    def next_turn(self) -> ComingTurn:
        """The turn that begins next."""
        self._coming.append(coming := ComingTurn())
        return coming

    def subscribe(self, queue: EventQueue) -> None:
        """Every event of the thread from now on."""
        self._all.add(queue)

    def unsubscribe(self, queue: EventQueue) -> None:
        self._all.discard(queue)
        for queues in self._of_turn.values():
            queues.discard(queue)

    def open_item(self, item_id: object) -> ThreadItem | None:
        """An item that has started and not ended."""
        return self._open_items.get(item_id) if isinstance(item_id, str) else None

    def publish(self, event: ServerEvent) -> bool:
        """Whether anybody reads the event."""
        match event:
            case ItemStartedNotification(item=item):
                self._open_items[item.id] = item
            case ItemCompletedNotification(item=item):
                self._open_items.pop(item.id, None)
            case TurnStartedNotification(turn=turn):
                self._begin(turn.id)
            case _:
                pass
        turn_id = turn_of(event)
        readers = [*self._all, *self._of_turn.get(turn_id or "", ())]
        for queue in readers:
            queue.put(event)
        if turn_id is not None and (progress := self._turns.get(turn_id)) is not None:
            progress.observe(event)
        if isinstance(event, TurnCompletedNotification):
            self._forget(event)
        return bool(readers)

    def _begin(self, turn_id: str) -> None:
        self.running_turn = turn_id
        coming, self._coming = self._coming, []
        for each in coming:
            each.begin(self.follow(turn_id))

    def _forget(self, event: TurnCompletedNotification) -> None:
        turn_id = event.turn.id
        self._ended[turn_id] = ended = TurnProgress(turn_id)
        ended.observe(event)
        if len(self._ended) > ENDED_TURNS:
            del self._ended[next(iter(self._ended))]
        if self.running_turn == turn_id:
            self.running_turn = None
        self._turns.pop(turn_id, None)
        for queue in self._of_turn.pop(turn_id, ()):
            queue.close()

    def fail_turn(self, turn_id: object, error: Exception) -> None:
        """Whoever follows the turn gets the error."""
        if not isinstance(turn_id, str):
            return
        if (progress := self._turns.get(turn_id)) is not None:
            progress.fail(error)
        for queue in self._of_turn.pop(turn_id, ()):
            queue.close(error)

    def end(self, error: Exception | None) -> None:
        """Nothing comes any more: the server is gone (`error`), or the thread was closed."""
        cause = error or ThreadClosed(f"the thread {self.thread_id} was closed")
        for progress in self._turns.values():
            progress.fail(cause, final=True)
        for coming in self._coming:
            coming.fail(cause)
        for queue in [*self._all, *(queue for queues in self._of_turn.values() for queue in queues)]:
            queue.close(error)
        self._turns.clear()
        self._coming.clear()
        self._of_turn.clear()
        self._open_items.clear()
