"""What the page shows of each record: what it answers and how late, what it is about, and what is wrong with it.

Pure. One `Analyzer` sees all records of a session in order.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.inspector.frames import Source
from app_server.inspector.rules.order import (
    RPC_RULES,
    RPC_RULES_OF_THE_END,
    OrderChecker,
    Requests,
    Violation,
    WireMessage,
)
from app_server.inspector.rules.session_rules import SESSION_RULES
from app_server.inspector.rules.thread_rules import THREAD_RULES, THREAD_RULES_OF_THE_END
from app_server.inspector.session_records import FROM, Record
from app_server.inspector.shapes import SCHEMA, Shapes
from app_server.inspector.subjects import NONE, Subject, Subjects
from protocol.structs import Json

LONGEST_TEXT = 1 << 16
"""Characters of a message that the page gets by itself; it asks for the rest of longer ones."""


class SessionEntry(Struct, frozen=True):
    """A record with what was found out about it."""

    number: int
    record: Record
    kind: str
    """`request`, `answer`, `error`, `notification`, `text` or `event`."""
    method: str
    """Of an answer: that of its request."""
    request: int
    """The number of the entry that this answers; -1 if it is no answer, or to nothing known."""
    latency: float
    """Milliseconds from the request to this answer; -1 if it is none."""
    subject: Subject
    violations: tuple[Violation, ...]

    def row(self) -> Json:
        """Return the entry as the page gets it; what is empty is left out."""
        record, subject = self.record, self.subject
        found = {
            "method": self.method,
            "thread": subject.thread,
            "turn": subject.turn,
            "item": subject.item,
            "itemKind": subject.kind,
            "phase": subject.phase,
            "wrong": [list(each) for each in self.violations],
            "cut": len(record.text) > LONGEST_TEXT,
            "unfinished": record.unfinished,
        }
        row: dict[str, Json] = {
            "n": self.number,
            "at": round(record.at, 3),
            "from": FROM[record.source],
            "size": record.size,
            "form": record.form,
            "kind": self.kind,
            "text": record.text[:LONGEST_TEXT],
        }
        row |= {name: value for name, value in found.items() if value}
        if self.request >= 0:
            row |= {"request": self.request, "latency": round(self.latency, 3)}
        return row


class Analyzer:
    def __init__(self) -> None:
        self._number = -1
        self._requests = Requests()
        self._open: dict[int, tuple[int, float]] = {}
        self._shapes, self._subjects = Shapes(), Subjects()
        self._order = OrderChecker(
            (*RPC_RULES, *THREAD_RULES), (*RPC_RULES_OF_THE_END, *THREAD_RULES_OF_THE_END)
        )
        self._client_left = False

    def entry(self, record: Record, message: Json) -> SessionEntry:
        """Analyse a record. `message` is what it holds, or None."""
        self._number += 1
        if record.form == "event":
            return self._event(record, message)
        if record.form != "message":
            is_wrong = record.source in (Source.CLIENT, Source.SERVER) and record.text.strip()
            wrong = ((SCHEMA, "no JSON"),) if is_wrong else ()
            return SessionEntry(self._number, record, "text", "", -1, -1, NONE, wrong)
        if not isinstance(message, dict):
            wrong = ((SCHEMA, "a message is an object"),)
            return SessionEntry(self._number, record, "text", "", -1, -1, NONE, wrong)
        return self._message(record, message)

    def _message(self, record: Record, message: Json) -> SessionEntry:
        sent = record.source is Source.CLIENT
        wire = self._requests.match(sent, message)
        if wire.method == "initialize" and "protocolVersion" in wire.params:
            self._order = OrderChecker((*RPC_RULES, *SESSION_RULES), RPC_RULES_OF_THE_END)
        request, latency = self._pair(wire, record.at)
        violations = (*self._shapes.violations(wire), *self._order.see(wire))
        subject = self._subjects.of(wire)
        return SessionEntry(
            self._number,
            record,
            _kind(wire),
            wire.method or wire.answers,
            request,
            latency,
            subject,
            violations,
        )

    def _pair(self, wire: WireMessage, at: float) -> tuple[int, float]:
        """Return the number of the request that this answers, and the milliseconds since; -1 twice if there is none."""
        if wire.method and "id" in wire.message:
            self._open[wire.position] = (self._number, at)
        number, asked = self._open.pop(wire.asked_at, (-1, at + 1))
        return number, at - asked

    def _event(self, record: Record, event: Json) -> SessionEntry:
        """Analyse an event; what is missing at the end is wrong if the client was still there."""
        name = event.get("event", "") if isinstance(event, dict) else ""
        self._client_left |= name == "ended" and event.get("source") == "client"
        missing = self._order.end() if name == "exited" and not self._client_left else ()
        return SessionEntry(self._number, record, "event", name, -1, -1, NONE, tuple(missing))


def _kind(wire: WireMessage) -> str:
    if wire.method:
        return "request" if "id" in wire.message else "notification"
    return "error" if "error" in wire.message else "answer"
