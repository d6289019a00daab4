"""Rollouts for the tests of this folder: a home, a fixed clock, valid and damaged lines."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.pagination import StoredHead, ThreadSummary
from app_server.engine.storage.record import StoredRecord
from app_server.engine.storage.rollout_names import new_rollout_path
from app_server.engine.storage.thread_summary import MetadataStore, read_stored_thread, summarise
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import open_history
from app_server.engine.storage.writer import RolloutWriter
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EndedItem, SessionEvent, TurnRenamed
from app_server_protocol.events.messages import AgentMessageEvent, UserMessageEvent
from app_server_protocol.ids import ConversationId, SessionOrigin
from app_server_protocol.parse import read
from app_server_protocol.responses import FunctionCall, InputText, MessageItem, OutputText
from app_server_protocol.rollout import RolloutItem, SessionMetaLine

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def now() -> datetime:
    return MOMENT


def conversation_id(number: int) -> ConversationId:
    return ConversationId(f"0199f0a0-0000-7000-8000-{number:012d}")


def meta(number: int = 1, **over: Json) -> SessionMetaLine:
    fields = {
        "id": conversation_id(number),
        "timestamp": "2026-01-02T03:04:05.678Z",
        "cwd": "/work",
        "originator": "test",
        "cli_version": "1.0.0",
        "model_provider": "mock",
    }
    return read(SessionMetaLine, {**fields, **over})


def user(text: str) -> MessageItem:
    return MessageItem(role="user", content=(InputText(text=text),))


def assistant(text: str) -> MessageItem:
    return MessageItem(role="assistant", content=(OutputText(text=text),))


def asked(text: str) -> UserMessageEvent:
    return UserMessageEvent(message=text, images=())


def answered(text: str) -> AgentMessageEvent:
    return AgentMessageEvent(message=text)


def call(call_id: str = "call-1") -> FunctionCall:
    return FunctionCall(name="shell", arguments="{}", call_id=call_id)


def conversation(question: str = "question", answer: str = "answer") -> list[RolloutItem]:
    return [user(question), asked(question), answered(answer), assistant(answer)]


def store(home: Path, items: Sequence[RolloutItem], number: int = 1, moment: datetime = MOMENT) -> Path:
    """Write a finished rollout of this home."""
    path = new_rollout_path(home, moment, conversation_id(number))
    writer = RolloutWriter.create(path, now, [meta(number), *items])
    assert writer.problem is None
    writer.close()
    return path


def raw_line(kind: str, payload: Json) -> bytes:
    """Return a line as another program may write it: with spaces."""
    line = {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}
    return json.dumps(line).encode() + b"\n"


def texts(items: Sequence[object]) -> list[str]:
    """Return the texts of the messages among these items."""
    return [
        part.text
        for item in items
        if isinstance(item, MessageItem)
        for part in item.content
        if isinstance(part, InputText | OutputText)
    ]


def head(**over: Json) -> StoredHead:
    """Return the head of a file as the index keeps it."""
    fields = {
        "id": conversation_id(1),
        "preview": "Straße",
        "timestamp": "",
        "provider": "mock",
        "cwd": "/work",
        "cli_version": "1",
        "source": SessionOrigin.CLI,
        "git": None,
        "originator": "test",
        "forked_from": None,
    }
    return StoredHead(**{**fields, **over})


Line = tuple[int, str, dict[str, Json]]
"""Line of a file: its number, counted from 0, its `type` and its `payload`."""


def taken(reader: RolloutDecoder, lines: Iterable[Line]) -> list[SessionEvent | TurnRenamed]:
    return [
        event
        for number, kind, payload in lines
        for event in reader.take(number, StoredRecord.of(kind, payload))
    ]


def turn_events(conversation_id: str, lines: Iterable[Line]) -> list[SessionEvent | TurnRenamed]:
    """Return the events of all turns, each with an end."""
    reader = RolloutDecoder(conversation_id)
    return taken(reader, lines) + reader.finish()


def read_summary(
    path: Path, default_provider: str = "mock", notes: MetadataStore | None = None
) -> ThreadSummary:
    """Return the summary of a stored conversation."""
    noted = (notes or MetadataStore(path.parent, lambda: 0.0)).read()
    return summarise(read_stored_thread(path), default_provider, noted)


def items_shown(path: Path, id: str) -> tuple[EndedItem, ...]:
    """Return all items of a stored conversation, as every API shows them."""
    with open_history(path, id, TurnIndexes()) as history:
        return tuple(history.whole().items)
