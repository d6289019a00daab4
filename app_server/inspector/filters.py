"""Which messages are looked at. Pure."""

from __future__ import annotations

from msgspec import Struct

from app_server.inspector.analysis import SessionEntry
from app_server.inspector.session_records import FROM, Source
from app_server.inspector.shapes import UNKNOWN_METHOD

VIOLATIONS, ERRORS, QUESTIONS = "violations", "errors", "questions"


class MessageFilter(Struct, frozen=True):
    """A message has to be all of this; what is empty lets all pass."""

    text: str = ""
    """In the message, in whatever case."""
    direction: str = ""
    """`client` or `server`."""
    method: str = ""
    """A part of the method; of an answer, of that of its request."""
    thread: str = ""
    turn: str = ""
    only: str = ""
    """`violations`, `errors`, or `questions` (of the server, and their answers)."""
    fold: bool = True
    """Deltas of one item that follow one another are one line."""

    def passes(self, entry: SessionEntry) -> bool:
        source, subject = entry.record.source, entry.subject
        if source is Source.STDERR and not self.text:
            return False  # the server's stderr has a view of its own
        return (
            (not self.direction or FROM[source] == self.direction)
            and (not self.method or self.method.lower() in entry.method.lower())
            and (not self.thread or subject.thread == self.thread)
            and (not self.turn or subject.turn == self.turn)
            and (not self.only or _is(self.only, entry))
            and (not self.text or self.text.lower() in entry.record.text.lower())
        )


def violates(entry: SessionEntry) -> bool:
    return any(rule != UNKNOWN_METHOD for rule, _ in entry.violations)


def _is(only: str, entry: SessionEntry) -> bool:
    if only == VIOLATIONS:
        return violates(entry)
    if only == ERRORS:
        return entry.failed
    return only == QUESTIONS and entry.asks


def folds(before: SessionEntry, entry: SessionEntry) -> bool:
    """Check whether an entry goes into the line of the one before it."""
    one, other = before.subject, entry.subject
    return (
        one.phase == other.phase == "delta"
        and not before.violations
        and not entry.violations
        and one.item == other.item
        and one.thread == other.thread
        and before.method == entry.method
    )
