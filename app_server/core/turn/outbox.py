"""Everything that a session says, in one order: lines for the rollout and events for whoever listens.

Saying never waits. A writer task stores what has piled up in one write and only then lets the events go, so no
event is seen that a crash could take back. Producers that could run ahead of a slow listener ask for `room()`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
import anyio.lowlevel

from app_server.core.rollout.policy import is_persisted
from app_server.core.rollout.writer import RolloutWriter
from app_server.core.threads import run_in_thread
from app_server.core.turn.coalesce import SessionEvent, coalesce
from protocol.events.msg import EventMsg
from protocol.events.notices import WarningEvent
from protocol.responses import ResponseItem
from protocol.rollout import CompactedItem, TurnContextItem

log = logging.getLogger(__name__)

HIGH_WATER = 2048
"""Events waiting for a listener above which producers pause; a listener that keeps up leaves a handful."""

GIVE_WAY = 6
"""So many rounds of the event loop a turn gets before what it said is stored. It has said something because something
came; what follows from that, a command to start or a request to send, lets others work while events are written.
"""

Line = ResponseItem | EventMsg | CompactedItem | TurnContextItem


class Outbox:
    """The one way out of a session."""

    def __init__(self, writer: RolloutWriter) -> None:
        self._writer = writer
        self._lines: list[Line] = []
        self._told: list[ResponseItem] = []
        self._journal_changed = False
        self._events: list[SessionEvent] = []
        self._ready: list[SessionEvent] = []
        self._due = False
        """Something was said that is not stored."""
        # Who waits for what; events are made only by those who do wait, since most of the time nobody has to.
        self._storing: anyio.Event | None = None
        self._taking: anyio.Event | None = None
        self._making_room: anyio.Event | None = None
        self._closed = False
        self._warned = False

    # --- saying
    def emit(self, id: str, msg: EventMsg, *, soon: bool = True) -> None:
        """Tell the listeners, and the rollout where it keeps events of this kind; not `soon`: with what comes next."""
        if is_persisted(msg):
            self._lines.append(msg)
        self._events.append(SessionEvent(id, msg))
        if soon:
            self._wake()

    def record(self, line: Line) -> None:
        """Keep it in the rollout only."""
        self._lines.append(line)
        self._wake()

    def record_items(self, items: Sequence[ResponseItem]) -> None:
        """Keep items of the history; those that were journaled are safe from now on."""
        self._lines.extend(items)
        if self._told:
            recorded = {id(item) for item in items}
            self._told = [item for item in self._told if id(item) not in recorded]
            self._journal_changed = True
        self._wake()

    def journal(self, item: ResponseItem) -> None:
        """Keep an item that the client is told of before the history holds it."""
        self._told.append(item)
        self._journal_changed = True
        self._wake()

    def forget_journal(self) -> None:
        """What was journaled will not be recorded after all: its request is made anew."""
        if self._told:
            self._told.clear()
            self._journal_changed = True
            self._wake()

    def _wake(self) -> None:
        self._due = True
        if self._storing is not None:
            self._storing.set()

    # --- storing
    async def run(self) -> None:
        """Store and release until `close`; what was said before that is stored."""
        while True:
            if not self._due:
                self._storing = anyio.Event()
                await self._storing.wait()
                self._storing = None
                for _ in range(GIVE_WAY):
                    await anyio.lowlevel.checkpoint()
            self._due = False
            self.store()
            if self._closed:
                return

    def store(self) -> None:
        """Write what was said and let its events go, now."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._writer.append(lines)
        if self._journal_changed:
            self._journal_changed = False
            self._writer.write_journal(self._told)
        self._report_problem()
        if self._events:
            self._ready += self._events
            self._events = []
            if self._taking is not None:
                self._taking.set()

    def _report_problem(self) -> None:
        problem = self._writer.problem
        if problem and not self._warned:
            text = (
                f"This conversation cannot be stored at the moment ({problem}). "
                "It goes on, and is stored as soon as that is possible."
            )
            self._events.append(SessionEvent("", WarningEvent(message=text)))
            log.warning("rollout: %s", problem)
        self._warned = bool(problem)

    async def flush(self) -> None:
        """Returns once everything said so far is on the disk."""
        self.store()
        try:
            await run_in_thread(self._writer.flush, abandon_on_cancel=True)
        except OSError:  # no thread at the moment; what was said must be stored all the same
            self._writer.flush()

    # --- listening
    async def take(self) -> list[SessionEvent]:
        """The events since the last call, waiting for the first; empty once the session has ended."""
        while not self._ready:
            if self._closed:
                return []
            self._taking = anyio.Event()
            await self._taking.wait()
            self._taking = None
        events, self._ready = self._ready, []
        if self._making_room is not None:
            self._making_room.set()
            self._making_room = None
        return events

    def give_back(self, events: Sequence[SessionEvent]) -> None:
        """Events that were taken and for which there is no listener any more."""
        self._ready[:0] = events

    async def room(self) -> None:
        """Waits while far more events are ready than anybody takes; first, deltas that lie side by side are joined."""
        if len(self._ready) + len(self._events) <= HIGH_WATER:
            return
        self._ready = coalesce(self._ready)
        while len(self._ready) > HIGH_WATER and not self._closed:
            if self._making_room is None:
                self._making_room = anyio.Event()
            await self._making_room.wait()

    def close(self) -> None:
        """Nothing more will be said."""
        self._closed = True
        self._wake()
        for waiter in (self._taking, self._making_room):
            if waiter is not None:
                waiter.set()
