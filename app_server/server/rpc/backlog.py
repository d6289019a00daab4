"""The queue of messages for one client, in their order. Pure.

A text that grows is not queued: a *mark* says which text the client lacks and from which offset on. The mark is turned
into lines when they are written, `text[sent:end]`. A client that keeps up gets a line for each piece, a client that is
behind gets the pieces that it lacks in one line; the text itself is kept once, wherever the source of the lines has it.
The mark at the end of the queue is open: it covers every further piece, without any work for each client, until another
message is queued behind it.

A line that reports a state is a mark of that state: for a client that is behind only the last line of each state stays.
A response may be the last line of its write, however much is queued behind it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable
from typing import Final, Protocol

import msgspec
from msgspec import Struct

PLACE: Final = 128
"""Size that each mark counts in addition to its content, in bytes."""


MOST_JOINED: Final = 4 << 20
"""Size up to which a client that is behind gets a text at once, in bytes, counted as the lines of its pieces."""


class TextSource(Protocol):
    """The lines in which one API sends a text that grows. Offsets count the pieces of the text."""

    @property
    def end(self) -> int:
        """Offset up to which the text is to be sent."""
        ...

    @property
    def size(self) -> int:
        """Size of the lines up to `end`, in bytes, without escapes: the lines may not be made yet."""
        ...

    def size_of(self, start: int, end: int) -> int:
        """Return the share of `size` that belongs to a range."""
        ...

    def lines(self, start: int, end: int, *, joined: bool) -> list[bytes]:
        """Return the lines of a range: of each piece by itself, or of all pieces together (`joined`)."""
        ...


class TextMark(Struct, eq=False):
    """Queue entry of a text: the pieces from `start` on are sent."""

    source: TextSource
    start: int
    before: int
    """Size of the source's lines before `start`, in bytes."""
    end: int | None = None
    """Offset at which the next entry was queued; None if the mark is open and covers every further piece."""


class StateMark(Struct, eq=False):
    """Queue entry of a line that reports a state; empty once a later line has replaced it."""

    of: Hashable
    line: bytes


class ResponseEntry(Struct, eq=False):
    """Queue entry of a response, which the client requested."""

    line: bytes
    ends_write: bool = False
    """Whether the lines behind it are taken later."""


class SendBuffer(Struct, eq=False):
    """The queue of one client."""

    _entries: deque[bytes | TextMark | StateMark | ResponseEntry] = msgspec.field(default_factory=deque)
    _open: TextMark | None = None
    """The last entry if it is a mark that covers every further piece of its text."""
    _states: dict[Hashable, StateMark] = msgspec.field(default_factory=dict)
    """The last mark of each state."""
    _size: int = 0
    """Size of all lines with their line ends, in bytes."""
    _asked: int = 0
    """Size of the lines that the client requested, in bytes."""
    _marks: int = 0
    """Size that marks count in addition, in bytes."""
    _texts: int = 0
    """Size of the texts of all marks but the open one, in bytes."""

    def __len__(self) -> int:
        """Return the number of queue entries."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Size of everything that the client has to read, in bytes; lines of marks are estimated."""
        mark = self._open
        texts = self._texts if mark is None else self._texts + mark.source.size - mark.before
        return self._size + texts

    @property
    def held(self) -> int:
        """Size of what is held for this client alone, in bytes: lines and entries, but not the texts of marks."""
        return self._size + self._marks

    @property
    def unasked(self) -> int:
        """Part of `held` that the client did not request, in bytes."""
        return self._size + self._marks - self._asked

    # --- adding
    def add(self, line: bytes) -> None:
        if self._open is not None:
            self.close_text()
        self._entries.append(line)
        self._size += len(line) + 1

    def add_answer(self, line: bytes, *, ends_write: bool = False) -> None:
        """Add a line that the client requested. `ends_write`: the lines behind it are taken later."""
        self.close_text()
        self._entries.append(ResponseEntry(line, ends_write))
        self._size += len(line) + 1
        self._asked += len(line) + 1

    def add_state(self, of: Hashable, line: bytes, *, last_only: bool) -> None:
        """Add a line that reports a state. If `last_only` is True, it replaces the line before of the same state."""
        self.close_text()
        before = self._states.get(of)
        if last_only and before is not None:
            self._size -= len(before.line) + 1
            before.line = b""
        mark = self._states[of] = StateMark(of, line)
        self._entries.append(mark)
        self._size += len(line) + 1
        self._marks += PLACE

    def is_sending(self, source: TextSource) -> bool:
        """Return whether every further piece of this text is sent anyway: its mark is open."""
        return self._open is not None and self._open.source is source

    def add_text(self, source: TextSource, start: int, before: int) -> None:
        """Mark a text: the client lacks it from `start` on. `before` is the size of the source's lines until there."""
        if not self.is_sending(source):
            self.close_text()
            self._open = TextMark(source, start, before)
            self._entries.append(self._open)
            self._marks += PLACE

    def close_text(self) -> None:
        """End the open mark at the present end of its text."""
        mark, self._open = self._open, None
        if mark is not None:
            mark.end = mark.source.end
            self._texts += mark.source.size - mark.before

    def adopt(self, other: SendBuffer) -> None:
        """Move all entries of another queue to the end of this one."""
        self.close_text()
        other.close_text()
        self._entries += other._entries
        self._states |= other._states
        self._size, self._asked = self._size + other._size, self._asked + other._asked
        self._marks, self._texts = self._marks + other._marks, self._texts + other._texts
        other.clear()

    # --- taking
    def take(self, most: int, *, joined: bool = False) -> list[bytes]:
        """Remove and return lines from the front, until they reach the size `most`, a line ends the write, or none is
        left. `joined` says whether the client is behind: each text is then sent in as few lines as possible.
        """
        lines: list[bytes] = []
        size = 0
        while self._entries and size < most:
            entry = self._entries[0]
            if isinstance(entry, bytes):
                self._entries.popleft()
                lines.append(entry)
                size += len(entry) + 1
                self._size -= len(entry) + 1
                continue
            if isinstance(entry, TextMark):
                taken = self._take_text(entry, most - size, joined=joined)
            else:
                self._entries.popleft()
                taken = self._take_line(entry)
            lines += taken
            size += sum(map(len, taken)) + len(taken)
            if isinstance(entry, ResponseEntry) and entry.ends_write:
                break
        return lines

    def _take_line(self, entry: StateMark | ResponseEntry) -> list[bytes]:
        line = entry.line
        if isinstance(entry, StateMark):
            self._marks -= PLACE
            if self._states.get(entry.of) is entry:
                del self._states[entry.of]
            if not line:
                return []
        else:
            self._asked -= len(line) + 1
        self._size -= len(line) + 1
        return [line]

    def _take_text(self, mark: TextMark, most: int, *, joined: bool) -> list[bytes]:
        """Return lines of a mark. The mark stays, with what is left of it, if its lines have more than `most` bytes."""
        if mark is self._open:
            self.close_text()  # the next piece gets a mark of its own, and wakes the writer
        assert mark.end is not None
        source, start, end = mark.source, mark.start, mark.end
        size = source.size_of(start, end)
        if joined:
            most = max(most, MOST_JOINED)
        if size > most:
            end, size = start, 0
            while size < most:
                size += source.size_of(end, end + 1)
                end += 1
        self._texts -= size
        if end == mark.end:
            self._entries.popleft()
            self._marks -= PLACE
        else:
            mark.start, mark.before = end, mark.before + size
        return source.lines(start, end, joined=joined)

    def drop_first(self) -> None:
        """Drop the first entry."""
        if not self._entries:
            return
        entry = self._entries[0]
        if isinstance(entry, TextMark):
            self._take_text(entry, sys.maxsize, joined=True)
        elif isinstance(entry, bytes):
            self._entries.popleft()
            self._size -= len(entry) + 1
        else:
            self._entries.popleft()
            self._take_line(entry)

    def clear(self) -> None:
        """Remove all entries."""
        self._open = None
        self._entries.clear()
        self._states.clear()
        self._size = self._asked = self._marks = self._texts = 0
