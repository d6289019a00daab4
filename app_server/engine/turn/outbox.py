"""Everything that a session emits, in one order: lines for the rollout and events for subscribers.

Emitting never waits. A writer task stores all pending lines in one write and only then releases the events, so no event
is seen that a crash could take back. The journal follows the text of open items, so that little of the text that was
seen is lost. How far a text has grown is one event, however many pieces it has grown by since it was taken; it is
released at once if nothing before it has to be stored. Back-pressure: producers that could run ahead of a slow
subscriber await `ReleasedEvents.wait_for_capacity`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import anyio
import anyio.lowlevel

from app_server.engine.context.history import ConversationHistory
from app_server.engine.storage.encode import StreamJournal, stored_events
from app_server.engine.storage.writer import NullRolloutWriter, RolloutWriter, require_written
from app_server.engine.support import user_messages
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.engine.events import EngineEvent, ItemTextGrown, SessionEvent
from app_server_protocol.engine.notices import HistoryItemRecorded, WarningNotice
from app_server_protocol.item_origin import without_origin
from app_server_protocol.responses import OtherItem, ResponseItem
from app_server_protocol.rollout import CompactedItem, StoredEvent, TurnContextItem

log = logging.getLogger(__name__)

HIGH_WATER = 2048
"""Number of pending events of a subscriber above which producers pause; a subscriber that keeps up leaves a handful."""

MOST_UNTAKEN = 32 * 1024 * 1024
"""Length of pending text above which producers pause, in characters."""

YIELD_ROUNDS = 4
"""Rounds of the event loop that a turn gets before its events are stored. The turn emitted them in reaction to an
event; the following action, such as starting a command or sending a request, lets other tasks run while the events are
written.
"""

KEEP_SECONDS = 0.2
"""Delay after which text that was sent to clients is written to the journal, in seconds: within the promised 250 ms."""

Line = ResponseItem | StoredEvent | CompactedItem | TurnContextItem


def queue(events: list[SessionEvent] | deque[SessionEvent], event: SessionEvent) -> None:
    """Queue an event. How far a text has grown takes the place of how far it had grown before."""
    grown, last = event.event, events[-1].event if events else None
    if isinstance(last, ItemTextGrown) and isinstance(grown, ItemTextGrown) and last.text is grown.text:
        events[-1] = event
    else:
        events.append(event)


class ReleasedEvents:
    """Events that subscribers may see and have not taken, in their order. One task takes them."""

    def __init__(self) -> None:
        self._events: deque[SessionEvent] = deque()
        self._untaken = 0
        """Length of the text that has been written since a text was taken, in characters."""
        # Each attribute is the event of one waiter. Only a waiter creates its event, since most of the time nothing
        # waits.
        self._arrival: anyio.Event | None = None
        self._capacity: anyio.Event | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: SessionEvent) -> None:
        if isinstance(event.event, ItemTextGrown):
            self._untaken += len(event.event.text.pieces[event.event.end - 1])
        queue(self._events, event)
        if self._arrival is not None:
            self._arrival.set()

    async def wait(self) -> bool:
        """Wait for an event. Return whether there is one: there is none once the session has ended."""
        while not self._events and not self._closed:
            self._arrival = anyio.Event()
            await self._arrival.wait()
            self._arrival = None
        return bool(self._events)

    def take(self) -> SessionEvent:
        """Return the first event, for which `wait` has waited."""
        event = self._events.popleft()
        if isinstance(event.event, ItemTextGrown):
            self._untaken = 0
        if self._capacity is not None and not self._is_full:
            self._capacity.set()
            self._capacity = None
        return event

    @property
    def _is_full(self) -> bool:
        return len(self._events) > HIGH_WATER or self._untaken > MOST_UNTAKEN

    async def wait_for_capacity(self) -> None:
        """Wait while far more is here than subscribers take."""
        while self._is_full and not self._closed:
            if self._capacity is None:
                self._capacity = anyio.Event()
            await self._capacity.wait()

    def close(self) -> None:
        """Wake all waiters: nothing more will be emitted."""
        self._closed = True
        for waiter in (self._arrival, self._capacity):
            if waiter is not None:
                waiter.set()


class Outbox:
    """The only exit of a session for lines and events."""

    def __init__(self, writer: RolloutWriter | NullRolloutWriter) -> None:
        self._writer = writer
        self._lines: list[Line] = []
        self._ahead: list[ResponseItem] = []
        """Items of the write-ahead log, which clients are sent before the history holds them."""
        self._ahead_changed = False
        self._text = StreamJournal()
        self._events: list[SessionEvent] = []
        """Events that are not stored yet."""
        self.released = ReleasedEvents()
        self._due = False
        """Whether an event or a line was emitted that is not stored yet."""
        # Each attribute is the event of one waiter. Only a waiter creates its event, since most of the time nothing
        # waits.
        self._storing: anyio.Event | None = None
        self._streaming: anyio.Event | None = None
        self._closed = False
        self._warned = False
        self.identity = False
        """Whether turns and items are stored with their ids and times."""
        self.raw_items = True
        """Whether the items of the model's history are emitted in their original form, too."""

    @property
    def stores_turns(self) -> bool:
        """Whether turns and items are stored with their ids: because of `identity`, or by the format of the file."""
        return self.identity or self._writer.form.paginated is not None

    # --- emitting
    def emit(
        self, operation_id: str, event: EngineEvent, *, turn_id: str | None = None, wake: bool = True
    ) -> None:
        """Emit an event; subscribers receive it once it is stored, if its kind is stored. `wake` False: store it with
        the next event.
        """
        session_event = SessionEvent(operation_id, turn_id, event)
        if isinstance(event, ItemTextGrown):
            if not self._waits_for_disk(session_event):
                self.released.put(session_event)
                return
        else:
            self._lines.extend(
                stored_events(session_event, identity=self.identity, paginated=self._writer.form.paginated)
            )
        queue(self._events, session_event)
        if wake:
            self._wake()

    def _waits_for_disk(self, grown: SessionEvent) -> bool:
        """Return whether text that has grown may be released only after a write: of events before it, or of the
        journal.
        """
        if self._due or self._events:
            return True
        self._text.follow(grown)
        if not self._text.is_due and self._streaming is not None:
            self._streaming.set()
        return self._text.is_due

    def record(self, line: Line) -> None:
        """Write a line to the rollout, without an event."""
        self._lines.append(line)
        self._wake()

    def record_items(self, items: Sequence[ResponseItem]) -> None:
        """Record items of the history; those in the write-ahead log are safe from now on."""
        self._lines.extend(items)
        if self._ahead:
            recorded = {id(item) for item in items}
            self._ahead = [item for item in self._ahead if id(item) not in recorded]
            self._ahead_changed = True
        self._wake()

    def log_ahead(self, item: ResponseItem) -> None:
        """Write an item to the write-ahead log: clients are sent it before the history holds it."""
        self._ahead.append(item)
        self._ahead_changed = True
        self._wake()

    def drop_log_ahead(self) -> None:
        """Clear the write-ahead log: its request is retried."""
        if self._ahead:
            self._ahead.clear()
            self._ahead_changed = True
            self._wake()

    def _wake(self) -> None:
        self._due = True
        if self._storing is not None:
            self._storing.set()

    # --- storing
    async def run(self) -> None:
        """Store and release events until `close`; everything that was emitted before is stored."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep_text, name="streamed text")
            await self._store_until_closed()
            group.cancel_scope.cancel()

    async def _keep_text(self) -> None:
        """Bound the delay before text is stored; one write has all text that arrives meanwhile."""
        while True:
            self._streaming = anyio.Event()
            await self._streaming.wait()
            self._streaming = None
            await anyio.sleep(KEEP_SECONDS)
            if self._text.waiting:
                self._text.is_due = True
                self._wake()

    async def _store_until_closed(self) -> None:
        while True:
            if not self._due:
                self._storing = anyio.Event()
                await self._storing.wait()
                self._storing = None
                for _ in range(YIELD_ROUNDS):
                    await anyio.lowlevel.checkpoint()
            self._due = False
            self.store()
            if self._closed:
                return

    def store(self) -> None:
        """Write the emitted lines and release their events, now."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._writer.append(lines)
        self._text.take(self._events, identity=self.stores_turns)
        if self._ahead_changed or self._text.is_due:
            self._ahead_changed = False
            pieces = self._text.pieces()
            self._writer.write_journal(self._ahead, pieces, growing=self._text.is_kept)
        elif self._streaming is not None and self._text.waiting:
            self._streaming.set()
        if self._writer.problem or self._warned:
            self._report_problem()
        if self._events:
            events, self._events = self._events, []
            for event in events:
                self.released.put(event)

    def require_stored(self) -> None:
        """Write the emitted lines and release their events. Raises NotStored if lines cannot be written."""
        self.store()
        require_written(self._writer)

    def _report_problem(self) -> None:
        problem = self._writer.problem
        if problem and not self._warned:
            text = str(user_messages.not_stored(problem))
            self._events.append(SessionEvent("", None, WarningNotice(message=text)))
            log.warning("rollout: %s", problem)
        self._warned = bool(problem)

    async def flush(self) -> None:
        """Wait until everything emitted so far is on the disk."""
        self.store()
        try:
            await run_in_thread(self._writer.flush, abandon_on_cancel=True)
        except OSError:  # no thread is available at the moment, and the lines must be stored nevertheless
            self._writer.flush()

    def close(self) -> None:
        """Wake all waiters: nothing more will be emitted."""
        self._closed = True
        self._wake()
        self.released.close()


class Emits(Protocol):
    """An emitter of events for a turn or for an operation."""

    def emit(self, event: EngineEvent, *, wake: bool = True) -> None: ...


class Transcript:
    """A history and its storage: lines in the rollout, and an event for clients that asked for raw items."""

    def __init__(self, history: ConversationHistory, outbox: Outbox | None) -> None:
        """`outbox`: None, as for a review, if nothing of this history belongs to the conversation."""
        self.history, self.outbox = history, outbox

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        """Add the items to the history."""
        self.history.record(items)
        if self.outbox is None:
            return
        self.outbox.record_items(items)
        for item in items if self.outbox.raw_items else ():
            if not isinstance(item, OtherItem):
                emitter.emit(HistoryItemRecorded(item=without_origin(item)))

    def announce(self, item: ResponseItem) -> None:
        """Announce that clients are about to be sent an item that is recorded later."""
        if self.outbox is not None:
            self.outbox.log_ahead(item)

    def take_back(self) -> None:
        """Forget the items that were announced and not recorded."""
        if self.outbox is not None:
            self.outbox.drop_log_ahead()
