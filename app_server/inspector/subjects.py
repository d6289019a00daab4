"""What a message is about: its thread, turn and item, in the words of one API, and what it says of their course. Pure.

For the conversation API a thread is a conversation, for the Agent Client Protocol a session; a turn is a prompt there.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from app_server.inspector.rules.order import EVENT_PREFIX, WireMessage
from protocol.structs import Json

TURN_STARTS, TURN_ENDS = "turn starts", "turn ends"
ITEM_STARTS, ITEM_ENDS, DELTA = "item starts", "item ends", "delta"
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
    """Of the item."""
    phase: str = ""
    """One of the words above, or nothing."""


NONE = Subject()


class Subjects:
    """Subjects of one connection: answers are about what was asked, and updates of a session about its prompt."""

    def __init__(self) -> None:
        self._asked: dict[int, Subject] = {}
        self._prompts: dict[str, str] = {}
        self._turns: set[tuple[str, str]] = set()
        """Threads with turns of theirs that took place on this connection."""

    def of(self, wire: WireMessage) -> Subject:
        """Return what a message is about.

        What is told of a fork's past, such as the tokens used, names a turn of its source: that is about the thread.
        """
        subject = self._named(wire)
        place = subject.thread, subject.turn
        is_question = not wire.sent and wire.method and "id" in wire.message
        if subject.phase or is_question or _id_of(_object(wire.result), "turn"):
            self._turns.add(place)
        return subject if not subject.turn or place in self._turns else Subject(subject.thread)

    def _named(self, wire: WireMessage) -> Subject:
        if not wire.method:
            return self._of_answer(wire)
        if wire.method.startswith(EVENT_PREFIX):
            subject = _of_event(wire)
        elif "sessionId" in wire.params:
            subject = self._of_session(wire)
        else:
            subject = _of_thread(wire)
        if "id" in wire.message:
            self._asked[wire.position] = subject
        return subject

    def _of_answer(self, wire: WireMessage) -> Subject:
        asked = self._asked.pop(wire.asked_at, NONE)
        result = _object(wire.result)
        thread = _id_of(result, "thread") or result.get("conversationId") or result.get("sessionId")
        turn, phase = _id_of(result, "turn"), ""
        if asked.phase == TURN_STARTS and wire.answers == "session/prompt":
            phase = TURN_ENDS
            self._prompts.pop(asked.thread, None)
        return Subject(
            asked.thread or _text(thread), asked.turn or _text(turn), asked.item, asked.kind, phase
        )

    def _of_session(self, wire: WireMessage) -> Subject:
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


def _of_thread(wire: WireMessage) -> Subject:
    """Find thread, turn and item of a message of the thread API, or of a request of the conversation API."""
    params, method = wire.params, wire.method
    item = _object(params.get("item"))
    thread = _id_of(params, "thread") or params.get("threadId") or params.get("conversationId")
    phase = {
        "turn/started": TURN_STARTS,
        "turn/completed": TURN_ENDS,
        "item/started": ITEM_STARTS,
        "item/completed": ITEM_ENDS,
    }.get(method, DELTA if method.lower().endswith("delta") else "")
    return Subject(
        _text(thread),
        _text(_id_of(params, "turn") or params.get("turnId")),
        _text(item.get("id") or params.get("itemId") or params.get("callId")),
        _text(item.get("type")),
        phase,
    )


def _of_event(wire: WireMessage) -> Subject:
    """Find thread, turn and item of an event of the conversation API; the operation's id stands for the turn."""
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
