"""The sessions that the page can show: the one that passes through, those that were opened, and replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
from anyio.abc import TaskGroup

from app_server.inspector.analysis import Analyzer
from app_server.inspector.scenario import steps_of
from app_server.inspector.session_records import Record, SessionHead, read_session
from app_server.inspector.session_replay import replay
from app_server.inspector.store import EntryStore

MOST = 16
"""ShownSessions besides the first; the oldest makes room."""
PIECE = 500


class ShownSessions:
    def __init__(
        self, first: EntryStore, command: Sequence[str], environment: Mapping[str, str] | None
    ) -> None:
        """Show a session. `command` and `environment` are what a replay starts; without a command there are none."""
        self._stores = {0: first}
        self._command, self._environment = command, environment
        self._last = 0

    @property
    def can_replay(self) -> bool:
        return bool(self._command)

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
        for number in [number for number in self._stores if 0 < number <= self._last - MOST]:
            del self._stores[number]
        return self._last


async def fill(store: EntryStore, records: Sequence[Record]) -> None:
    """Analyse the records of a file, letting others run meanwhile."""
    analyzer = Analyzer()
    for start in range(0, len(records), PIECE):
        store.add([analyzer.entry(record, record.value()) for record in records[start : start + PIECE]])
        await anyio.lowlevel.checkpoint()
    store.end()
