"""The queue of messages for one client, in their order. Pure.

Lines that are sent to many clients are stored once for all clients that have not taken them. For a client that is
behind while others read, pieces of a text are counted instead of queued: they are stored once for all such clients, and
each gets the pieces that it missed coalesced into one. Of lines that report the same state, it gets the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, assert_never

import msgspec
from msgspec import Struct

PLACE: Final = 128
"""Size that each entry of the queue counts in addition to its content, in bytes."""
MOST_KEPT: Final = 1 << 20
"""Maximum length of a command's output that is kept for clients that miss it, in characters."""
PIECE: Final = 8 * 1024
"""Maximum size of output in one line, in bytes: clients read lines of 64 KiB, and each byte may need an escape."""
WIDEST: Final = 4
"""Maximum size of a character in UTF-8, in bytes."""


class Delta(Struct, frozen=True):
    """A piece of a text, made once for all clients that are sent it."""

    text: DeltaStream
    piece: str


class DeltaStream(Struct, eq=False):
    """A text that clients are sent piece by piece, in lines that differ only in the piece."""

    line: Callable[[str], bytes]
    """Function that makes the line of a piece."""
    output: bool = False
    """Whether the text is the output of a command, which may be long."""
    method: str = ""
    """Method of the notifications if a client may opt out of them, else ""."""
    _kept: list[str | int] = msgspec.field(default_factory=list)
    """Pieces that clients have missed; a piece beyond the maximum is replaced by its length."""
    _size: int = 0
    _last: Delta | None = None

    def part(self, piece: str) -> Delta:
        return Delta(self, piece)

    def pieces(self, text: str) -> Iterator[str]:
        """Cut a text so that its lines are not too long."""
        step = PIECE if text.isascii() else PIECE // WIDEST
        if not self.output or len(text) <= step:
            yield text
        else:
            yield from (text[start : start + step] for start in range(0, len(text), step))

    def keep(self, part: Delta) -> int:
        """Store a part for a client, unless it was stored for another one. Return the number of stored parts."""
        if part is not self._last:
            self._last = part
            self._size += len(part.piece)
            fits = not self.output or self._size <= MOST_KEPT
            self._kept.append(part.piece if fits else len(part.piece))
        return len(self._kept)

    def lines(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the lines of the stored parts from one number to another, which a client has missed."""
        missed = self._kept[start:end]
        text = "".join(each for each in missed if isinstance(each, str))
        if left_out := sum(each for each in missed if isinstance(each, int)):
            text += f"\n[... {left_out} characters omitted ...]\n"
        yield from map(self.line, self.pieces(text))


class SharedChunk(Struct, eq=False):
    """Lines that several clients are sent one after another, until they are closed."""

    lines: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0
    """Size of the lines with their line ends, in bytes."""
    readers: set[SendBuffer] = msgspec.field(default_factory=set)
    """Queues that get each further line at their ends."""

    def add(self, line: bytes) -> None:
        """Add a line for all readers."""
        self.lines.append(line)
        self.size += len(line) + 1

    def close(self) -> None:
        """Detach all readers, so that they get no further lines."""
        for each in list(self.readers):
            each.end_shared()


class SharedRef(Struct, eq=False):
    """Queue entry of lines that other clients are sent, too."""

    of: SharedChunk
    start: int
    end: int | None = None
    """Number of the first line that does not belong to the entry; None if every further line belongs to it."""
    size: int = 0
    """Size of the lines once the end is known, in bytes; until then, minus the size of the lines before the entry."""


class CoalescedText(Struct, eq=False):
    """Queue entry of the pieces of a text that a client missed."""

    text: DeltaStream
    start: int
    end: int


class ConflatedState(Struct, eq=False):
    """Queue entry of a line that reports a state, until a later line reports it again."""

    of: Hashable
    line: bytes


class ResponseEntry(Struct, eq=False):
    """Queue entry of a response, which the client requested."""

    line: bytes


class SendBuffer:
    """The queue of one client."""

    def __init__(self) -> None:
        self._places: deque[bytes | SharedRef | CoalescedText | ConflatedState | ResponseEntry] = deque()
        self._shared: SharedRef | None = None
        """The last entry if it is a shared one that gets further lines."""
        self._missed: dict[DeltaStream, CoalescedText] = {}
        """Entries to which further pieces may be added: only such entries and states are queued after them."""
        self._states: dict[Hashable, ConflatedState] = {}
        self._size = 0
        """Size of all lines with their line ends, in bytes."""
        self._asked = 0
        """Size of the lines that the client requested, in bytes."""
        self._costs = 0
        """Size that the entries count in addition, in bytes."""

    def __len__(self) -> int:
        """Return the number of queue entries."""
        return len(self._places)

    @property
    def size(self) -> int:
        """Size of the lines with their line ends, in bytes; missed pieces count once they are taken."""
        shared = self._shared
        return self._size if shared is None else self._size + shared.of.size + shared.size

    @property
    def unasked(self) -> int:
        """Size of the lines that the client did not request, in bytes, with the size that entries count in addition."""
        return self.size - self._asked + self._costs

    # --- adding
    def add(self, line: bytes) -> None:
        if self._shared is not None or self._missed:
            self._end_joined()
        self._places.append(line)
        self._size += len(line) + 1

    def share(self, lines: SharedChunk) -> None:
        """Add every line that is added to `lines` from now on, until another line is added here or the
        entry is taken.
        """
        self._end_joined()
        self._shared = SharedRef(lines, len(lines.lines), size=-lines.size)
        self._places.append(self._shared)
        lines.readers.add(self)

    def end_shared(self) -> None:
        """Detach this queue from the shared lines, so that it gets no further ones."""
        if (shared := self._shared) is not None:
            self._shared = None
            shared.of.readers.discard(self)
            shared.end = len(shared.of.lines)
            shared.size += shared.of.size
            self._size += shared.size

    def add_answer(self, line: bytes) -> None:
        """Add a line that the client requested."""
        self._end_joined()
        self._places.append(ResponseEntry(line))
        self._size += len(line) + 1
        self._asked += len(line) + 1

    def add_missed(self, part: Delta) -> None:
        """Count a piece of a text instead of adding its line."""
        end = part.text.keep(part)
        missed = self._missed.get(part.text)
        if missed is None:
            self.end_shared()
            missed = self._missed[part.text] = CoalescedText(part.text, end - 1, end)
            self._places.append(missed)
            self._costs += PLACE
        missed.end = end

    def add_state(self, of: Hashable, line: bytes) -> None:
        """Add a line that replaces the earlier one of the same state."""
        self.end_shared()
        before, state = self._states.get(of), ConflatedState(of, line)
        if before is not None:
            self._size -= len(before.line) + 1
            before.line = b""
        self._states[of] = state
        self._places.append(state)
        self._size += len(line) + 1
        self._costs += PLACE

    def _end_joined(self) -> None:
        """Close the entries to which lines could be added, so that the next line gets an entry after them."""
        self.end_shared()
        self._missed.clear()

    # --- taking
    def take(self, most: int) -> list[bytes]:
        """Remove and return lines from the front, until they reach the size `most` or none is left."""
        lines: list[bytes] = []
        size = 0
        while self._places and size < most:
            place = self._places.popleft()
            if isinstance(place, bytes):
                lines.append(place)
                size += len(place) + 1
                self._size -= len(place) + 1
            else:
                taken = len(lines)
                self._take(place, lines)
                size += sum(len(line) + 1 for line in lines[taken:])
        return lines

    def _take(
        self, place: SharedRef | CoalescedText | ConflatedState | ResponseEntry, lines: list[bytes]
    ) -> None:
        match place:
            case SharedRef(of=shared):
                if place is self._shared:
                    self.end_shared()
                lines.extend(shared.lines[place.start : place.end])
                self._size -= place.size
            case ResponseEntry(line=line):
                lines.append(line)
                self._size -= len(line) + 1
                self._asked -= len(line) + 1
            case ConflatedState(line=line):
                self._costs -= PLACE
                if line:
                    lines.append(line)
                    self._size -= len(line) + 1
                    del self._states[place.of]
            case CoalescedText(text=text):
                lines.extend(text.lines(place.start, place.end))
                self._costs -= PLACE
                if self._missed.get(text) is place:
                    del self._missed[text]
            case _:
                assert_never(place)

    def clear(self) -> None:
        """Remove all entries."""
        self.end_shared()
        self._places.clear()
        self._missed.clear()
        self._states.clear()
        self._size = self._asked = self._costs = 0
