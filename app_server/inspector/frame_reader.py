"""Frames ⇄ records: puts lines together, per source. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from app_server.inspector.frames import Frame, Source
from app_server.inspector.session_records import Record, record_of
from app_server.transport.framing import LineDecoder
from protocol.base import Json

NO_LIMIT = 1 << 62


class StreamReader:
    """Gives each line that frames complete, with the message that it holds, if any."""

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
        yield record_of(
            Source.INSPECTOR, at, b'{"event":"ended","source":"%b"}' % source.name.lower().encode()
        )
