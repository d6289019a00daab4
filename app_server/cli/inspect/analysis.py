"""Facts about each record for the page: the request that it answers and its latency, its subject, and its violations.

The subject is the thread, turn and item, in the terms of one API: for the conversation API a thread is a conversation,
for the Agent Client Protocol a session, and a turn is a prompt. Pure. One `Analyzer` sees all records of a session in
order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct

from app_server.cli.inspect.rules import order
from app_server.cli.inspect.rules.session_rules import SESSION_RULES
from app_server.cli.inspect.rules.thread_rules import THREAD_RULES, THREAD_RULES_OF_THE_END
from app_server.cli.inspect.session_records import Record, Source
from app_server.cli.inspect.shapes import SCHEMA, UNKNOWN_METHOD, Shapes
from app_server_protocol.encoding import Json

TURN_STARTS, TURN_ENDS = "turn starts", "turn ends"
ITEM_STARTS, ITEM_ENDS, DELTA = "item starts", "item ends", "delta"
WITHDRAWALS = ("serverRequest/resolved", "$/cancel_request")
"""Notifications of the server that name one of its questions, which is then over."""
ENDED_CALLS = ("completed", "failed")
PIECES = {
    "agent_message_chunk": "message",
    "agent_thought_chunk": "thought",
    "user_message_chunk": "user message",
}


class Subject(Struct, frozen=True):
    thread: str = ""
    turn: str = ""
    item: str = ""
    kind: str = ""
    """Kind of the item."""
    phase: str = ""
    """One of the phases above, or empty."""


NONE = Subject()


class Subjects:
    """Finds the subjects of one connection's messages. The subject of an answer is that of its request, and that of a
    session's update is its prompt.
    """

    def __init__(self) -> None:
        self._asked: dict[int, Subject] = {}
        self._prompts: dict[str, str] = {}
        self._turns: set[tuple[str, str]] = set()
        """Pairs of a thread and a turn that took place on this connection."""

    def of(self, wire: order.WireMessage) -> Subject:
        """Return the subject of a message.

        A message about a fork's past, such as its token usage, names a turn of the source thread. Its subject is the
        thread.
        """
        subject = self._named(wire)
        place = subject.thread, subject.turn
        is_question = not wire.sent and wire.method and "id" in wire.message
        if subject.phase or is_question or _id_of(_object(wire.result), "turn"):
            self._turns.add(place)
        return subject if not subject.turn or place in self._turns else Subject(subject.thread)

    def _named(self, wire: order.WireMessage) -> Subject:
        if not wire.method:
            return self._of_answer(wire)
        if wire.method.startswith(order.EVENT_PREFIX):
            subject = _of_event(wire)
        elif "sessionId" in wire.params:
            subject = self._of_session(wire)
        else:
            subject = _of_thread(wire)
        if "id" in wire.message:
            self._asked[wire.position] = subject
        return subject

    def _of_answer(self, wire: order.WireMessage) -> Subject:
        asked = NONE if wire.asked is None else self._asked.pop(wire.asked.position, NONE)
        result = _object(wire.result)
        thread = _id_of(result, "thread") or result.get("conversationId") or result.get("sessionId")
        turn, phase = _id_of(result, "turn"), ""
        if asked.phase == TURN_STARTS and wire.answers == "session/prompt":
            phase = TURN_ENDS
            self._prompts.pop(asked.thread, None)
        return Subject(
            asked.thread or _text(thread), asked.turn or _text(turn), asked.item, asked.kind, phase
        )

    def _of_session(self, wire: order.WireMessage) -> Subject:
        session = _text(wire.params["sessionId"])
        if wire.method == "session/prompt" and "id" in wire.message:
            self._prompts[session] = f"prompt {wire.message['id']}"
            return Subject(session, self._prompts[session], phase=TURN_STARTS)
        turn = self._prompts.get(session, "")
        update = wire.params.get("update") or wire.params.get("toolCall")
        if not isinstance(update, dict):
            return Subject(session, turn)
        kind = _text(update.get("sessionUpdate"))
        if "toolCallId" not in update:
            name = PIECES.get(kind, "")
            return Subject(session, turn, name, name, DELTA if name else "")
        phase = {"tool_call": ITEM_STARTS}.get(kind, "")
        if update.get("status") in ENDED_CALLS:
            phase = ITEM_ENDS
        return Subject(session, turn, _text(update["toolCallId"]), _text(update.get("kind")), phase)


def _of_thread(wire: order.WireMessage) -> Subject:
    """Return thread, turn and item of a message of the thread API, or of a request of the conversation API."""
    params, method = wire.params, wire.method
    item, run = _object(params.get("item")), _object(params.get("run"))
    thread = _id_of(params, "thread") or params.get("threadId") or params.get("conversationId")
    phase = {
        "turn/started": TURN_STARTS,
        "turn/completed": TURN_ENDS,
        "item/started": ITEM_STARTS,
        "item/completed": ITEM_ENDS,
        "hook/started": ITEM_STARTS,
        "hook/completed": ITEM_ENDS,
    }.get(method, DELTA if method.lower().endswith("delta") else "")
    return Subject(
        _text(thread),
        _text(_id_of(params, "turn") or params.get("turnId")),
        _text(item.get("id") or run.get("id") or params.get("itemId") or params.get("callId")),
        _text(item.get("type") or (f"hook {run['eventName']}" if "eventName" in run else "")),
        phase,
    )


def _of_event(wire: order.WireMessage) -> Subject:
    """Return thread, turn and item of an event of the conversation API; the operation's id stands for the turn."""
    event = _object(wire.params.get("msg"))
    kind = _text(event.get("type"))
    thread, turn = _text(wire.params.get("conversationId")), _text(wire.params.get("id"))
    item: Json = event.get("item")
    if kind in ("item_started", "item_completed") and isinstance(item, dict) and len(item) == 1:
        [(name, inner)] = item.items()
        id = _text(inner.get("id") if isinstance(inner, dict) else None)
        return Subject(thread, turn, id, name, ITEM_STARTS if kind == "item_started" else ITEM_ENDS)
    phase = {"task_started": TURN_STARTS, "task_complete": TURN_ENDS, "turn_aborted": TURN_ENDS}.get(kind, "")
    if kind.endswith("_begin"):
        phase = ITEM_STARTS
    elif kind.endswith("_end"):
        phase = ITEM_ENDS
    elif kind.endswith("_delta"):
        phase = DELTA
    id = _text(event.get("call_id") or event.get("item_id"))
    return Subject(
        thread, turn, id, kind.rpartition("_")[0] if phase in (ITEM_STARTS, ITEM_ENDS) else "", phase
    )


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _id_of(value: Mapping[str, Json], name: str) -> Json:
    inner = value.get(name)
    return inner.get("id") if isinstance(inner, dict) else None


def _text(value: Json) -> str:
    return "" if value is None else str(value)


class SessionEntry(Struct, frozen=True):
    """A record with the results of its analysis."""

    number: int
    record: Record
    kind: str = "text"
    """`request`, `answer`, `error`, `notification`, `text` or `event`."""
    method: str = ""
    """Method of the message. An answer has that of its request."""
    request: int = -1
    """Number of the entry that this answers. -1 if it is no answer, or if its request is not known."""
    latency: float = -1
    """Time from the request to this answer, in milliseconds. -1 if it is no answer."""
    subject: Subject = NONE
    violations: tuple[order.Violation, ...] = ()
    failed: bool = False
    """Whether it reports a failure: an error, or a turn that ended with one."""
    withdraws: int = -1
    """Number of the server's question that this withdraws. The question may have an answer of this client, or not,
    because another client of a shared server was quicker, or the turn has ended. -1 if it withdraws none.
    """

    @property
    def asks(self) -> bool:
        """Whether it is a question of the server, or its answer."""
        return self.record.source is (Source.SERVER if self.kind == "request" else Source.CLIENT) and (
            self.kind in ("request", "answer", "error")
        )

    @property
    def violates(self) -> bool:
        """Whether it breaks a rule. An unknown method breaks none."""
        return any(rule != UNKNOWN_METHOD for rule, _ in self.violations)

    def row(self, longest: int) -> Json:
        """Return the entry in the form for the page, with at most `longest` characters of its text. Empty fields are
        left out.
        """
        record, subject = self.record, self.subject
        found = {
            "method": self.method,
            "thread": subject.thread,
            "turn": subject.turn,
            "item": subject.item,
            "phase": subject.phase,
            "wrong": [list(each) for each in self.violations],
            "cut": len(record.text) > longest,
            "unfinished": record.unfinished,
            "failed": self.failed,
        }
        row: dict[str, Json] = {
            "n": self.number,
            "at": round(record.at, 3),
            "from": record.source,
            "size": record.size,
            "form": record.form,
            "kind": self.kind,
            "text": record.text[:longest],
        }
        row |= {name: value for name, value in found.items() if value}
        if self.request >= 0:
            row |= {"request": self.request, "latency": round(self.latency, 3)}
        return row


class Analyzer:
    def __init__(self) -> None:
        self._number = -1
        self._requests = order.Requests()
        self._open: dict[int, tuple[int, float]] = {}
        self._questions: dict[str, int] = {}
        """Entry numbers of the server's open questions, by their ids as JSON."""
        self._shapes, self._subjects = Shapes(), Subjects()
        self._order = order.OrderChecker(
            (*order.RPC_RULES, *THREAD_RULES), (*order.RPC_RULES_OF_THE_END, *THREAD_RULES_OF_THE_END)
        )
        self._client_left = False

    def entry(self, record: Record, message: Json) -> SessionEntry:
        """Analyse a record. `message` is its JSON value, or None."""
        self._number += 1
        if record.form == "event":
            return self._event(record, message)
        if isinstance(message, dict):
            return self._message(record, message)
        wrong = ""
        if record.form == "message":
            wrong = "a message is an object"
        elif record.source in (Source.CLIENT, Source.SERVER) and record.text.strip():
            wrong = "no JSON"
        return SessionEntry(self._number, record, violations=((SCHEMA, wrong),) if wrong else ())

    def _message(self, record: Record, message: Json) -> SessionEntry:
        sent = record.source is Source.CLIENT
        wire = self._requests.match(sent, message)
        if wire.method == "initialize" and "protocolVersion" in wire.params:
            self._order = order.OrderChecker((*order.RPC_RULES, *SESSION_RULES), order.RPC_RULES_OF_THE_END)
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
            _failed(wire, subject),
            self._withdrawn(wire),
        )

    def _withdrawn(self, wire: order.WireMessage) -> int:
        """Return the number of the open question that a message of the server ends; -1 if it ends none."""
        id = json.dumps(wire.message.get("id"))
        if wire.sent:
            if not wire.method:
                self._questions.pop(id, None)
        elif wire.method and "id" in wire.message:
            self._questions[id] = self._number
        elif wire.method in WITHDRAWALS:
            return self._questions.pop(json.dumps(wire.params.get("requestId")), -1)
        return -1

    def _pair(self, wire: order.WireMessage, at: float) -> tuple[int, float]:
        """Return the number of the request that this answers, and the milliseconds since it; -1 for both if there is
        none.
        """
        if wire.method and "id" in wire.message:
            self._open[wire.position] = (self._number, at)
        if wire.asked is None:
            return -1, -1
        number, asked = self._open.pop(wire.asked.position)
        return number, at - asked

    def _event(self, record: Record, event: Json) -> SessionEntry:
        """Analyse an event. A message that is missing at the end is a violation if the client had not left."""
        name = event.get("event", "") if isinstance(event, dict) else ""
        self._client_left |= name == "ended" and event.get("source") == "client"
        missing = self._order.end() if name == "exited" and not self._client_left else ()
        return SessionEntry(self._number, record, "event", name, violations=tuple(missing))


def _kind(wire: order.WireMessage) -> str:
    if wire.method:
        return "request" if "id" in wire.message else "notification"
    return "error" if "error" in wire.message else "answer"


def _failed(wire: order.WireMessage, subject: Subject) -> bool:
    if "error" in wire.message or wire.method in ("error", "codex/event/error", "codex/event/stream_error"):
        return True
    return subject.phase == TURN_ENDS and _object(wire.params.get("turn")).get("status") == "failed"
