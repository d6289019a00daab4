"""The lines of a list under one filter: each line is an entry, or consecutive deltas. Only positions are kept, so a
list of hundreds of thousands of lines is small, and any part of it is found at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from msgspec import Struct

from app_server.cli.inspect.analysis import SessionEntry
from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.session_records import Source
from app_server_protocol.encoding import Json

STEP = 4000
"""Number of entries that are processed before other tasks run."""
MOST_LINES = 200
"""Maximum number of lines in one answer to the page."""
PIECES, CHARACTERS = 60, 8192
"""Limits of a line's content in an answer: the number of deltas, and the characters of each."""


class MessageFilter(Struct, frozen=True):
    """Conditions for messages. A message has to meet all of them; an empty condition is met by every message."""

    text: str = ""
    """Text that the message contains, in any case."""
    direction: str = ""
    """Sender: `client` or `server`."""
    method: str = ""
    """Part of the method. An answer has the method of its request."""
    thread: str = ""
    turn: str = ""
    only: str = ""
    """Kind: `violations`, `errors`, or `questions` (of the server, and their answers)."""
    fold: bool = True
    """Whether consecutive deltas of one item are one line."""

    def passes(self, entry: SessionEntry) -> bool:
        source, subject = entry.record.source, entry.subject
        if source is Source.STDERR and not self.text:
            return False  # the page shows the server's stderr separately
        return (
            (not self.direction or source == self.direction)
            and (not self.method or self.method.lower() in entry.method.lower())
            and (not self.thread or subject.thread == self.thread)
            and (not self.turn or subject.turn == self.turn)
            and (not self.only or self._is_only(entry))
            and (not self.text or self.text.lower() in entry.record.text.lower())
        )

    def _is_only(self, entry: SessionEntry) -> bool:
        kinds = {"violations": entry.violates, "errors": entry.failed, "questions": entry.asks}
        return kinds.get(self.only, False)


def folds(before: SessionEntry, entry: SessionEntry) -> bool:
    """Return whether an entry belongs to the line of the entry before it."""
    one, other = before.subject, entry.subject
    return (
        one.phase == other.phase == "delta"
        and not before.violations
        and not entry.violations
        and one.item == other.item
        and one.thread == other.thread
        and before.method == entry.method
    )


class MessageLines:
    def __init__(self, store: EntryStore, filter: MessageFilter) -> None:
        self._store, self._filter = store, filter
        self._firsts, self._lasts = array("q"), array("q")
        self._counts, self._sizes = array("q"), array("q")
        self._unfolded: set[int] = set()
        self._before: SessionEntry | None = None
        self._seen = store.first
        self.gone = 0
        """Number of lines whose entries are not kept any more. It is also the number of the first existing line."""
        self.matches = 0
        """Number of entries that pass the filter."""

    @property
    def total(self) -> int:
        """The number of lines, including those that are gone."""
        return self.gone + len(self._firsts)

    def update(self) -> bool:
        """Process new entries, up to `STEP` of them. Return whether there are more."""
        entries = self._store.from_number(self._seen, STEP)
        for entry in entries:
            if self._filter.passes(entry):
                self.matches += 1
                self._add(entry)
        if entries:
            self._seen = entries[-1].number + 1
        self._forget()
        return self._store.has(self._seen)

    def _add(self, entry: SessionEntry) -> None:
        before, self._before = self._before, entry
        folded = self._filter.fold and before is not None and len(self._firsts) > 0 and folds(before, entry)
        if folded and self._firsts[-1] not in self._unfolded and self._lasts[-1] not in self._unfolded:
            self._lasts[-1] = entry.number
            self._counts[-1] += 1
            self._sizes[-1] += entry.record.size
            return
        if folded:
            self._unfolded.add(entry.number)
        self._insert(len(self._firsts), entry)

    def _insert(self, at: int, entry: SessionEntry) -> None:
        for column, value in zip(
            self._columns(), (entry.number, entry.number, 1, entry.record.size), strict=True
        ):
            column.insert(at, value)

    def _columns(self) -> tuple[array[int], ...]:
        return self._firsts, self._lasts, self._counts, self._sizes

    def _forget(self) -> None:
        """Drop lines without kept entries, many at once."""
        dropped = bisect_right(self._lasts, self._store.first - 1)
        if dropped > STEP or dropped == len(self._lasts):
            for column in self._columns():
                del column[:dropped]
            self.gone += dropped
            self._unfolded = {number for number in self._unfolded if number >= self._store.first}

    def place(self, number: int) -> int:
        """Return the number of the line that shows an entry; -1 if no line does."""
        at = bisect_right(self._firsts, number) - 1
        entry = self._store.entry(number)
        if at < 0 or number > self._lasts[at] or entry is None or not self._filter.passes(entry):
            return -1
        return self.gone + at

    def toggle(self, line: int) -> int:
        """Unfold a line of deltas, or fold the line with its neighbours. Return the number of the first of these
        lines.
        """
        at = line - self.gone
        if not 0 <= at < len(self._firsts):
            return -1
        members = self._members(at)
        if len(members) > 1:
            self._cut(at, at + 1)
            self._unfolded |= {entry.number for entry in members}
            for n, entry in enumerate(members):
                self._insert(at + n, entry)
            return line
        start, end = at, at + 1
        while start > 0 and self._firsts[start - 1] in self._unfolded and self._joins(start - 1, start):
            start -= 1
        while end < len(self._firsts) and self._firsts[end] in self._unfolded and self._joins(end - 1, end):
            end += 1
        if end - start > 1:
            joined = self._firsts[start], self._lasts[end - 1], end - start, sum(self._sizes[start:end])
            self._unfolded -= set(self._firsts[start:end])
            self._cut(start, end)
            for column, value in zip(self._columns(), joined, strict=True):
                column.insert(start, value)
        return self.gone + start

    def _joins(self, one: int, other: int) -> bool:
        before, entry = self._store.entry(self._lasts[one]), self._store.entry(self._firsts[other])
        return before is not None and entry is not None and folds(before, entry)

    def _cut(self, start: int, end: int) -> None:
        for column in self._columns():
            del column[start:end]

    def _members(self, at: int, most: int = 1 << 62) -> list[SessionEntry]:
        """Return the entries of a line, at most `most`."""
        found: list[SessionEntry] = []
        number, last = self._firsts[at], self._lasts[at]
        while number <= last and len(found) < most:
            entries = self._store.from_number(number, min(STEP, last - number + 1))
            found += [entry for entry in entries if self._filter.passes(entry)]
            if not entries:
                break
            number = entries[-1].number + 1
        return [entry for entry in found[:most] if entry.number <= last]

    def shown(self, start: int, count: int) -> list[Json]:
        """Return some lines in the form for the page. A line whose entries are not kept has only its number."""
        first = max(start - self.gone, 0)
        return [self._line(at) for at in range(first, min(first + min(count, MOST_LINES), len(self._firsts)))]

    def _line(self, at: int) -> Json:
        members = self._members(at, PIECES if self._counts[at] > 1 else 1)
        line: dict[str, Json] = {"line": self.gone + at, "n": self._firsts[at], "last": self._lasts[at]}
        if not members:
            return line
        line |= {"times": self._counts[at], "size": self._sizes[at], "row": members[0].row(CHARACTERS)}
        if self._counts[at] > 1:
            end = self._store.entry(self._lasts[at])
            line["until"] = members[-1].record.at if end is None else end.record.at
            line["more"] = [each.record.text[:CHARACTERS] for each in members[1:]]
        elif self._firsts[at] in self._unfolded:
            line["part"] = True
        return line
