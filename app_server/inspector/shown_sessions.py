"""The sessions that pages show, by number: 0 is the one that passes through, others were opened or are replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from app_server.inspector.analysis import Analyzer
from app_server.inspector.scenario import steps_of
from app_server.inspector.session_records import Record, SessionHead, read_session
from app_server.inspector.session_replay import replay
from app_server.inspector.store import EntryStore

MOST_OPENED = 16
"""Sessions besides the first; the oldest makes room."""
RETURNS_WITHIN = 1.0
"""Seconds that a page has to be loaded again, or to look at another list."""
PIECE = 500
"""Records that are analysed before others get a turn."""


class ShownSessions:
    def __init__(
        self, first: EntryStore, command: Sequence[str], environment: Mapping[str, str] | None
    ) -> None:
        """Show a session. `command` and `environment` are what a replay starts; without a command there are none."""
        self._stores = {0: first}
        self._command, self._environment = command, environment
        self._last = 0
        self._followers = 0
        self._left = anyio.Event()
        self._came = anyio.Event()
        self.over = False
        """Nobody is served any more."""

    @property
    def can_replay(self) -> bool:
        return bool(self._command)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count a page that is open."""
        self._followers += 1
        self._came.set()
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._came = anyio.Event()
                self._left.set()
                self._left = anyio.Event()

    async def until_nobody_follows(self) -> None:
        """Wait until no page is open, nor opened again within a moment. Return at once if none was ever open."""
        if not self._came.is_set():
            return
        while True:
            while self._followers:
                await self._left.wait()
            with anyio.move_on_after(RETURNS_WITHIN):
                await self._came.wait()
                continue
            return

    def end(self) -> None:
        """Let the streams to pages end."""
        self.over = True
        for store in self._stores.values():
            store.wake()

    def store(self, number: int) -> EntryStore | None:
        return self._stores.get(number)

    def open(self, text: str, name: str, group: TaskGroup) -> int:
        """Open a session that a file describes; return its number. Raises NotASession."""
        head, records = read_session(text)
        store = EntryStore(head, name)
        group.start_soon(fill, store, records, name="open a session")
        return self._add(store)

    def replay(self, recorded: EntryStore, group: TaskGroup) -> int:
        """Begin a replay; its number. Raises ValueError where there is nothing to be played, or no server."""
        steps = steps_of(entry.record for entry in recorded.all())
        if not self._command:
            raise ValueError("no server was named; as in `app-server inspect --open FILE -- SERVER ARG...`")
        if not steps:
            raise ValueError("the client said nothing in this session")
        store = EntryStore(SessionHead(self._command, recorded.head.began), f"replay of {recorded.name}")
        group.start_soon(replay, self._command, self._environment, steps, store, name="replay")
        return self._add(store)

    def _add(self, store: EntryStore) -> int:
        self._last += 1
        self._stores[self._last] = store
        for number in [number for number in self._stores if 0 < number <= self._last - MOST_OPENED]:
            del self._stores[number]
        return self._last


async def fill(store: EntryStore, records: Sequence[Record]) -> None:
    """Analyse the records of a file, letting others run meanwhile."""
    analyzer = Analyzer()
    for start in range(0, len(records), PIECE):
        store.add([analyzer.entry(record, record.value()) for record in records[start : start + PIECE]])
        await anyio.lowlevel.checkpoint()
    store.end()
