"""Where frames become what is kept: lines of a recording, and entries for the page."""

from __future__ import annotations

from collections.abc import Iterable

from app_server.inspector.analysis import Analyzer
from app_server.inspector.frame_reader import StreamReader
from app_server.inspector.frames import Frame
from app_server.inspector.session_file import Recorder
from app_server.inspector.store import EntryStore


class Intake:
    """Of one session. Without a store nothing is analysed."""

    def __init__(self, store: EntryStore | None, recorder: Recorder | None = None) -> None:
        self._store, self._recorder = store, recorder
        self._reader, self._analyzer = StreamReader(), Analyzer()

    def take(self, frames: Iterable[Frame]) -> None:
        """Raises OSError where the recording cannot be written."""
        pairs = [pair for frame in frames for pair in self._reader.feed(frame)]
        if self._recorder is not None:
            self._recorder.write(record for record, _ in pairs)
        if self._store is not None:
            self._store.add([self._analyzer.entry(record, message) for record, message in pairs])
