"""How far the text of a running item is shown, and the lines in which an API sends it. Pure.

The engine keeps the text of a message or a thought, in pieces (`ItemText`); the output of a command is kept here.
Readers hold offsets, which count pieces: `ShownText` how far clients are sent the text, `TextLines` how far an API has
sent it, the mark in a client's queue how far that client has, a snapshot for a client that joins how far the text had
come by then. A piece is a delta of the model or a chunk of a command's output.

Of a command's output the beginning and the end are kept. What lies between is dropped once every client that keeps up
has it; readers that come later are told how much is missing.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct

from app_server_protocol.engine.events import ItemTextGrown
from app_server_protocol.engine.item_text import Gap, joined, runs
from app_server_protocol.engine.item_values import ExecOutputStream

KEPT_HEAD = 1 << 20
"""Length of the beginning of a command's output that is kept, in characters."""
KEPT_TAIL = 1 << 16
"""Minimum length of the end of a command's output that is kept, in characters."""
LINE_LENGTH = 8 * 1024
"""Maximum size of output in one line, in bytes: clients read lines of 64 KiB, and each byte may need an escape."""
JOINED_LENGTH = 1 << 20
"""Length from which a line for a client that is behind has no further piece, in characters."""
WIDEST = 4
"""Maximum size of a character in UTF-8, in bytes."""


def cut_to_lines(text: str) -> Iterator[str]:
    """Cut output so that no line is too long; empty output has no line."""
    step = LINE_LENGTH if text.isascii() else LINE_LENGTH // WIDEST
    return (text[start : start + step] for start in range(0, len(text), step))


class ShownText(Struct, eq=False):
    """A text that grows, as far as clients are sent it. The engine may have written more of it since."""

    pieces: Sequence[str | Gap] = ()
    """Pieces in their order: those that the engine keeps."""
    end: int = 0
    """Offset up to which the text is shown."""
    length: int = 0
    """Length of the pieces up to there, including dropped ones, in characters."""
    since: int = 0
    """Offset before the last event that has added to the text."""
    lines: dict[object, TextLines] = msgspec.field(default_factory=dict)
    """The lines of each API, by its adapter."""

    def grow(self, event: ItemTextGrown) -> None:
        """Show the text up to the offset of the event."""
        self.pieces = event.text.pieces
        self.since, self.end = self.end, max(self.end, event.end)
        self.length += sum(map(len, self.pieces[self.since : self.end]))

    def text(self, start: int = 0, end: int | None = None) -> str:
        """Return the pieces of a range as one text, which says what is missing."""
        return joined(self.pieces[start : self.end if end is None else end])


class PrintedOutput(ShownText, eq=False):
    """The output of a command, which is kept here: what both streams have printed, in its order. A character may be
    split between two chunks of a stream.
    """

    pieces: list[str | Gap] = msgspec.field(default_factory=list)
    tail: int = KEPT_TAIL
    """Length of the end that is kept, in characters: at least as much as waits for a client that keeps up."""
    _streams: list[ExecOutputStream] = msgspec.field(default_factory=list)
    _bytes: dict[int, bytes] = msgspec.field(default_factory=dict)
    """The chunks that are no whole characters, by their offsets."""
    _decoders: dict[ExecOutputStream, codecs.IncrementalDecoder] = msgspec.field(default_factory=dict)
    _dropped: int = 0
    """Offset up to which the pieces behind the head are dropped; 0 while the output is short."""
    _kept_tail: int = 0

    def add_chunk(self, stream: ExecOutputStream, chunk: bytes) -> None:
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        begun = decoder.getstate()[0]
        text = decoder.decode(chunk)
        if begun or decoder.getstate()[0] or "\ufffd" in text:
            self._bytes[self.end] = chunk
        self._add_piece(stream, text)

    def finish(self) -> None:
        """Add the undecoded rest of each stream: characters whose ends never arrived."""
        before = self.end
        for stream, decoder in self._decoders.items():
            if rest := decoder.decode(b"", final=True):
                self._bytes[self.end] = b""
                self._add_piece(stream, rest)
        self.since = before

    def chunks(self, start: int, end: int) -> Iterator[tuple[ExecOutputStream, bytes]]:
        """Yield the bytes of a range, those of neighbouring pieces of one stream together."""
        for stream, offsets in groupby(range(start, end), self._streams.__getitem__):
            chunks = runs([self._bytes.get(n, self.pieces[n]) for n in offsets])
            yield (
                stream,
                b"".join(each if isinstance(each, bytes) else str(each).encode() for each in chunks),
            )

    def last(self, length: int) -> str:
        """Return the last characters of the output."""
        start, size = self.end, 0
        while start > 0 and size < length and isinstance(piece := self.pieces[start - 1], str):
            size += len(piece)
            start -= 1
        return self.text(start)[-length:]

    def _add_piece(self, stream: ExecOutputStream, text: str) -> None:
        self._streams.append(stream)
        self.pieces.append(text)
        self.since, self.end = self.end, self.end + 1
        self.length += len(text)
        if self.length <= KEPT_HEAD:
            return
        if not self._dropped:
            self._dropped = self.since
        self._kept_tail += len(text)
        while self._dropped < self.since:
            piece = self.pieces[self._dropped]
            assert isinstance(piece, str)
            if self._kept_tail - len(piece) < self.tail:
                break
            self.pieces[self._dropped] = Gap(len(piece))
            self._bytes.pop(self._dropped, None)
            self._kept_tail -= len(piece)
            self._dropped += 1


class TextLines(Struct, eq=False):
    """The lines in which one API sends a text."""

    of: ShownText
    make: Callable[[int, int], list[bytes]]
    """Function that makes the lines of a range of pieces as one piece."""
    end: int
    """Offset up to which the API has sent the text."""
    overhead: int = 0
    """Size of a line without its text, in bytes."""
    method: str = ""
    """Method of the notifications if a client may opt out of them, else ""."""
    longest: int | None = None
    """Length from which a line has no further piece, in characters, if pieces are always sent together; None if a
    client that keeps up gets each piece by itself.
    """
    size: int = 0
    _made: tuple[int, int, bool, list[bytes]] | None = None
    """The range that was made last, with its lines: other clients need it, too."""

    def grow(self, end: int | None = None) -> TextGrown:
        """Send the text up to `end`; None: all of it. Return the message that does."""
        start, before = self.end, self.size
        self.end = self.of.end if end is None else end
        self.size += self.size_of(start, self.end)
        return TextGrown(self, start, before)

    def size_of(self, start: int, end: int) -> int:
        pieces = self.of.pieces[start:end]
        return self.overhead * len(pieces) + sum(map(len, pieces))

    def lines(self, start: int, end: int, *, joined: bool) -> list[bytes]:
        made = self._made
        if made is None or made[:3] != (start, end, joined):
            made = self._made = start, end, joined, list(self._lines(start, end, joined=joined))
        return made[3]

    def _lines(self, start: int, end: int, *, joined: bool) -> Iterator[bytes]:
        longest = self.longest
        if longest is None:
            longest = JOINED_LENGTH if joined else 0
        length, first = 0, start
        for n, piece in enumerate(self.of.pieces[start:end], start):
            length += len(piece)
            if length >= longest or n + 1 == end:
                yield from self.make(first, n + 1)
                length, first = 0, n + 1


class TextGrown(Struct, frozen=True):
    """Message that a text has grown: clients are sent it from the offset `start` on."""

    lines: TextLines
    start: int
    before: int
    """Size of the lines until there, in bytes."""
    news: object = None

    @property
    def method(self) -> str:
        return self.lines.method
