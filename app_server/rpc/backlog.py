"""The messages that wait for one client, in their order. Pure.

Lines that many clients are sent are kept once for all who have not taken them. For a client that is behind while others
read, pieces of a text are counted instead of queued: they are kept once for
all such clients, and each gets what it has missed as one piece. Of lines that tell the same state, it gets the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, assert_never

import msgspec
from msgspec import Struct

PLACE: Final = 128
"""Bytes that a place in the queue counts, whatever it holds."""
MOST_KEPT: Final = 1 << 20
"""Characters of a command's output that are kept for clients that miss it."""
PIECE: Final = 8 * 1024
"""Bytes of output in one line at most: clients read lines of 64 KiB, and each byte may need an escape."""
WIDEST: Final = 4
"""Bytes of a character at most."""


class TextPart(Struct, frozen=True):
    """A piece of a text, made once for all clients that are sent it."""

    text: StreamedText
    piece: str


class StreamedText(Struct, eq=False):
    """A text that clients are sent piece by piece, in lines that differ in nothing else."""

    line: Callable[[str], bytes]
    """Makes the line of a piece."""
    output: bool = False
    """It is the output of a command, of which there may be much."""
    method: str = ""
    """Of notifications that a client may do without."""
    _kept: list[str | int] = msgspec.field(default_factory=list)
    """The pieces that clients have missed; instead of one that was too much its length."""
    _size: int = 0
    _last: TextPart | None = None

    def part(self, piece: str) -> TextPart:
        return TextPart(self, piece)

    def pieces(self, text: str) -> Iterator[str]:
        """Cut a text so that its lines are not too long."""
        step = PIECE if text.isascii() else PIECE // WIDEST
        if not self.output or len(text) <= step:
            yield text
        else:
            yield from (text[start : start + step] for start in range(0, len(text), step))

    def keep(self, part: TextPart) -> int:
        """Keep a part for a client, unless another one has it kept already. Return how many are kept."""
        if part is not self._last:
            self._last = part
            self._size += len(part.piece)
            fits = not self.output or self._size <= MOST_KEPT
            self._kept.append(part.piece if fits else len(part.piece))
        return len(self._kept)

    def lines(self, start: int, end: int) -> Iterator[bytes]:
        """Yield what a client has missed from one number of kept parts to another."""
        missed = self._kept[start:end]
        text = "".join(each for each in missed if isinstance(each, str))
        if left_out := sum(each for each in missed if isinstance(each, int)):
            text += f"\n[... {left_out} characters omitted ...]\n"
        yield from map(self.line, self.pieces(text))


class SharedLines(Struct, eq=False):
    """Lines that several clients are sent in a row, until it is closed."""

    lines: list[bytes] = msgspec.field(default_factory=list)
    size: int = 0
    """Bytes, with the ends of the lines."""
    readers: set[Backlog] = msgspec.field(default_factory=set)
    """Queues to whose ends each further line belongs."""

    def add(self, line: bytes) -> None:
        """Add a line for all readers."""
        self.lines.append(line)
        self.size += len(line) + 1

    def close(self) -> None:
        """Let nobody read on."""
        for each in list(self.readers):
            each.end_shared()


class SharedPlace(Struct, eq=False):
    """The place of lines that other clients are sent, too."""

    of: SharedLines
    start: int
    end: int | None = None
    """None: every further line belongs here, too."""
    size: int = 0
    """Bytes of the lines, once the end is known; while it is not, less what was there before."""


class Missed(Struct, eq=False):
    """The place of what a client missed of a text."""

    text: StreamedText
    start: int
    end: int


class State(Struct, eq=False):
    """The place of a line that says what is, until another one says it anew."""

    of: Hashable
    line: bytes


class Asked(Struct, eq=False):
    """The place of a line that the client asked for."""

    line: bytes


class Backlog:
    """The queue of one client."""

    def __init__(self) -> None:
        self._places: deque[bytes | SharedPlace | Missed | State | Asked] = deque()
        self._shared: SharedPlace | None = None
        """The last place, if further lines belong there."""
        self._missed: dict[StreamedText, Missed] = {}
        """Those that more may be added to: behind them stand only such pieces and states."""
        self._states: dict[Hashable, State] = {}
        self._size = 0
        """Bytes of all lines, with their ends."""
        self._asked = 0
        """Bytes of those that the client asked for."""
        self._costs = 0
        """Bytes that count for places besides."""

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self._places)

    @property
    def size(self) -> int:
        """Bytes of the lines, with their ends; what was missed counts once it is taken."""
        shared = self._shared
        return self._size if shared is None else self._size + shared.of.size + shared.size

    @property
    def unasked(self) -> int:
        """Bytes of the lines that the client did not ask for, and what their places cost."""
        return self.size - self._asked + self._costs

    # --- adding
    def add(self, line: bytes) -> None:
        if self._shared is not None or self._missed:
            self._end_joined()
        self._places.append(line)
        self._size += len(line) + 1

    def share(self, lines: SharedLines) -> None:
        """Add every line that comes to these from now on, until something else is added or they are taken."""
        self._end_joined()
        self._shared = SharedPlace(lines, len(lines.lines), size=-lines.size)
        self._places.append(self._shared)
        lines.readers.add(self)

    def end_shared(self) -> None:
        """Let further lines belong elsewhere."""
        if (shared := self._shared) is not None:
            self._shared = None
            shared.of.readers.discard(self)
            shared.end = len(shared.of.lines)
            shared.size += shared.of.size
            self._size += shared.size

    def add_answer(self, line: bytes) -> None:
        """Add a line that the client asked for."""
        self._end_joined()
        self._places.append(Asked(line))
        self._size += len(line) + 1
        self._asked += len(line) + 1

    def add_missed(self, part: TextPart) -> None:
        """Count a piece of a text instead of adding its line."""
        end = part.text.keep(part)
        missed = self._missed.get(part.text)
        if missed is None:
            self.end_shared()
            missed = self._missed[part.text] = Missed(part.text, end - 1, end)
            self._places.append(missed)
            self._costs += PLACE
        missed.end = end

    def add_state(self, of: Hashable, line: bytes) -> None:
        """Add a line instead of the one that said the same state before."""
        self.end_shared()
        before, state = self._states.get(of), State(of, line)
        if before is not None:
            self._size -= len(before.line) + 1
            before.line = b""
        self._states[of] = state
        self._places.append(state)
        self._size += len(line) + 1
        self._costs += PLACE

    def _end_joined(self) -> None:
        """Let what comes next have a place behind what is there."""
        self.end_shared()
        self._missed.clear()

    # --- taking
    def take(self, most: int) -> list[bytes]:
        """Remove and return lines from the front, until they are as long as `most` or none is left."""
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

    def _take(self, place: SharedPlace | Missed | State | Asked, lines: list[bytes]) -> None:
        match place:
            case SharedPlace(of=shared):
                if place is self._shared:
                    self.end_shared()
                lines.extend(shared.lines[place.start : place.end])
                self._size -= place.size
            case Asked(line=line):
                lines.append(line)
                self._size -= len(line) + 1
                self._asked -= len(line) + 1
            case State(line=line):
                self._costs -= PLACE
                if line:
                    lines.append(line)
                    self._size -= len(line) + 1
                    del self._states[place.of]
            case Missed(text=text):
                lines.extend(text.lines(place.start, place.end))
                self._costs -= PLACE
                if self._missed.get(text) is place:
                    del self._missed[text]
            case _:
                assert_never(place)

    def clear(self) -> None:
        """Remove everything."""
        self.end_shared()
        self._places.clear()
        self._missed.clear()
        self._states.clear()
        self._size = self._asked = self._costs = 0
