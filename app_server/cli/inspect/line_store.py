"""From frames to entries: lines are assembled per source, then recorded, and kept as entries for the page.

The entries are bounded: the oldest are dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import anyio

from app_server.cli.inspect.analysis import Analyzer, SessionEntry
from app_server.cli.inspect.overview import Overview
from app_server.cli.inspect.session_records import Frame, Record, Recorder, SessionHead, Source, record_of
from app_server_protocol.encoding import Json
from app_server_protocol.framing import LineDecoder

MOST_ENTRIES = 250_000
MOST_BYTES = 512 << 20
NEAR = 300
"""Maximum number of entries that are read by index. For more, the way to the first one is taken only once."""


class EntryStore:
    """The entries of a session. It has one writer, and any number of readers that each read at their own pace."""

    def __init__(self, head: SessionHead, name: str = "live", *, most: int = MOST_ENTRIES) -> None:
        self.head, self.name = head, name
        self.ended = False
        self.first = 0
        """Number of the first kept entry. It is also the number of the entries that are not kept any more."""
        self.changed = anyio.Event()
        """Event that is set when an entry arrives, or at the end. It is then replaced by a new event."""
        self.overview = Overview()
        self._entries: deque[SessionEntry] = deque()
        self._size, self._most = 0, most

    def add(self, entries: Iterable[SessionEntry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self.overview.add(entry)
            self._size += len(entry.record.text)
        while self._entries and (len(self._entries) > self._most or self._size > MOST_BYTES):
            self._size -= len(self._entries.popleft().record.text)
            self.first += 1
        self.wake()

    def end(self) -> None:
        """Mark the end: no more entries follow."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Wake up all readers that wait for a change."""
        self.changed.set()
        self.changed = anyio.Event()

    def from_number(self, number: int, most: int) -> list[SessionEntry]:
        """Return the next entries from a number on, at most `most`."""
        here = max(number, self.first) - self.first
        if most < NEAR:
            return [self._entries[at] for at in range(here, min(here + most, len(self._entries)))]
        return [*islice(self._entries, here, here + most)]

    def has(self, number: int) -> bool:
        return number < self.first + len(self._entries)

    def entry(self, number: int) -> SessionEntry | None:
        at = number - self.first
        return self._entries[at] if 0 <= at < len(self._entries) else None

    def all(self) -> list[SessionEntry]:
        return list(self._entries)


NO_LIMIT = 1 << 62


class StreamReader:
    """Yields each line that frames complete, with its message, if there is one."""

    def __init__(self) -> None:
        self._decoders = {
            source: LineDecoder(NO_LIMIT) for source in (Source.CLIENT, Source.SERVER, Source.STDERR)
        }

    def feed(self, frame: Frame) -> Iterator[tuple[Record, Json]]:
        at = frame.at / 1e6
        if frame.source is Source.INSPECTOR:
            yield record_of(frame.source, at, frame.data)
            return
        decoder = self._decoders[frame.source]
        if not frame.data:
            yield from self._end(frame.source, at, decoder)
            return
        for line in decoder.feed(frame.data):
            assert isinstance(line, bytes)  # there is no limit
            yield record_of(frame.source, at, line)

    @staticmethod
    def _end(source: Source, at: float, decoder: LineDecoder) -> Iterator[tuple[Record, Json]]:
        if rest := decoder.close():
            yield record_of(source, at, rest, unfinished=True)
        yield record_of(Source.INSPECTOR, at, b'{"event":"ended","source":"%b"}' % source.encode())


class Intake:
    """The processing of one session's frames. Without a store, nothing is analysed."""

    def __init__(self, store: EntryStore | None, recorder: Recorder | None = None) -> None:
        self._store, self._recorder = store, recorder
        self._reader, self._analyzer = StreamReader(), Analyzer()

    def take(self, frames: Iterable[Frame]) -> None:
        """Process frames. Raises OSError if the recording cannot be written."""
        pairs = [pair for frame in frames for pair in self._reader.feed(frame)]
        if self._recorder is not None:
            self._recorder.write(record for record, _ in pairs)
        if self._store is not None:
            self._store.add([self._analyzer.entry(record, message) for record, message in pairs])
