"""Reads a stored conversation: its metadata, the model's history, and the events for clients.

It skips and counts damaged and unknown lines. It reads the file in pieces with a maximum line length, so that an
endless line costs bounded memory. Payloads are validated many at a time, by validators that are built when the first
conversation is resumed. Which events a rollout stores is said here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, get_args

from msgspec import Struct
from pydantic import Field, TypeAdapter, ValidationError

from app_server.core.bounds import without_collector
from app_server.core.rollout.disk import RolloutUnreadable, describe, open_for_reading, open_to_read_all
from app_server.core.rollout.journal import leftover_items
from app_server.core.rollout.last_state import GOAL_LINES, goal_of
from app_server.core.rollout.records import REVERTED, TakenBack, parse_line
from app_server.core.rollout.rollout_lines import (
    TOO_LONG,
    cut_line,
    is_blank,
    parse_object,
    parse_record,
    read_lines,
)
from app_server.core.rollout.rollout_names import conversation_of, journal_path
from protocol.engine.events import Goal
from protocol.events.messages import (
    AgentMessageEvent,
    AgentReasoningEvent,
    AgentReasoningRawContentEvent,
    UserMessageEvent,
)
from protocol.events.msg import EventMsg, parse_event_msg
from protocol.events.notices import UndoCompletedEvent
from protocol.events.review import EnteredReviewModeEvent, ExitedReviewModeEvent
from protocol.events.turn import TokenCountEvent, TurnAbortedEvent
from protocol.responses import KnownItem, OtherItem, ResponseItem, parse_response_item
from protocol.rollout import CompactedItem, SessionMetaLine, StoredEvent, TurnContextItem

if TYPE_CHECKING:
    from protocol.events.msg import EventMsg

PERSISTED_EVENTS: Final = frozenset(
    {
        "user_message",
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "token_count",
        "entered_review_mode",
        "exited_review_mode",
        "undo_completed",
        "turn_aborted",
    }
)


def is_persisted(event: EventMsg) -> bool:
    """Whether an event of this kind is stored, for display after a resume."""
    return event.type in PERSISTED_EVENTS


StoredMessage = (
    UserMessageEvent
    | AgentMessageEvent
    | AgentReasoningEvent
    | AgentReasoningRawContentEvent
    | TokenCountEvent
    | TurnAbortedEvent
    | EnteredReviewModeEvent
    | ExitedReviewModeEvent
    | UndoCompletedEvent
)

ITEM_NAMES: Final = frozenset(model.model_fields["type"].default.encode() for model in get_args(KnownItem))
MESSAGE_NAMES: Final = frozenset(name.encode() for name in PERSISTED_EVENTS)


@cache
def item_batch() -> TypeAdapter[list[KnownItem]]:
    return TypeAdapter(list[Annotated[KnownItem, Field(discriminator="type")]])


@cache
def message_batch() -> TypeAdapter[list[StoredMessage]]:
    return TypeAdapter(list[Annotated[StoredMessage, Field(discriminator="type")]])


def array_of(payloads: Sequence[bytes]) -> bytes:
    """The JSON array of these values. May be invalid: a payload may be incomplete or several values."""
    return b"[" + b",".join(payloads) + b"]"


BATCH = 1024
"""Lines to validate in one call, which is several times faster than one call each."""

HistoryLine = ResponseItem | CompactedItem
Kind = TypeVar("Kind")


class StoredConversation(Struct, frozen=True):
    """The content of a rollout."""

    path: Path
    meta: SessionMetaLine
    items: tuple[HistoryLine, ...]
    """The model's history, in the order of the file."""
    initial_messages: tuple[EventMsg, ...]
    leftover: tuple[ResponseItem, ...]
    """Items that clients received before a crash, and that are not among `items`."""
    last_model: str | None
    """The model of the last turn."""
    skipped: int
    """The number of unreadable lines."""
    lines: int
    """Of the file, or as many as were asked for."""
    taken_back: TakenBack
    """Lines that do not count."""
    goal: Goal | None = None


def read_rollout(path: Path, keeps: int | None = None) -> StoredConversation:
    """What the file holds, or its first `keeps` lines. Raises `RolloutUnreadable`; its text never has anything of the
    file. Slow for long files: use a thread."""
    try:
        fd = open_to_read_all(path)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
    except ValueError:
        raise RolloutUnreadable("the path cannot be one of a file") from None
    try:
        with without_collector():
            found = _collected(fd, keeps, TakenBack())
            if found.taken_back:
                os.lseek(fd, 0, os.SEEK_SET)
                found = _collected(fd, found.lines, found.taken_back)
            if found.meta is None:
                raise RolloutUnreadable(f"{path} is not a rollout: it has no session metadata")
            return StoredConversation(
                path=path,
                meta=found.meta.model_copy(update={"id": conversation_of(path.name, found.meta.id)}),
                items=tuple(found.items),
                initial_messages=tuple(found.messages),
                leftover=tuple(leftover_items(journal_path(path), fd)) if keeps is None else (),
                last_model=found.last_model(),
                skipped=found.skipped,
                lines=found.lines,
                taken_back=found.taken_back,
                goal=goal_of(found.goal),
            )
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
    finally:
        os.close(fd)


def copied_lines(stored: StoredConversation) -> Iterator[bytes]:
    """Every line that counts, as it is in the file, but for the metadata, the goal, which is that of one conversation
    only, and what is no record. Raises OSError."""
    fd = open_for_reading(stored.path)
    try:
        for number, line in enumerate(islice(read_lines(fd), stored.lines)):
            kind, _, name = cut_line(line)
            named = kind.decode() if kind else _kind_of(line)
            left_out = named in (None, "session_meta") or name in GOAL_LINES
            if not left_out and number not in stored.taken_back:
                yield line
    finally:
        os.close(fd)


def _kind_of(line: bytes) -> str | None:
    record = parse_record(line)
    kind = record.get("type") if record is not None else None
    return kind if isinstance(kind, str) else None


def _collected(fd: int, most: int | None, without: TakenBack) -> _Collector:
    """Of so many lines, without some of them."""
    found = _Collector()
    for number, line in enumerate(islice(read_lines(fd), most)):
        if line is TOO_LONG and found.meta is None:
            break  # no rollout begins so, and what follows may be a gigabyte of nothing
        found.lines = number + 1
        if number not in without:
            found.add_line(number, line)
    found.validate_batches()
    if without:
        found.taken_back = without
    return found


class _Collector:
    """Collects history lines and messages, each in the order of the file."""

    def __init__(self) -> None:
        self.lines = 0
        self.taken_back = TakenBack()
        self.meta: SessionMetaLine | None = None
        self.items: list[HistoryLine] = []
        self.messages: list[EventMsg] = []
        self.skipped = 0
        self._item_payloads: list[bytes] = []
        self._message_payloads: list[bytes] = []
        self._turn_context: bytes | None = None
        self.goal: bytes | None = None
        """The last line about one."""

    def add_line(self, number: int, line: bytes) -> None:
        """Adds lines in their usual form to a batch; parses other lines at once, after the pending batch."""
        kind, payload, name = cut_line(line)
        if kind == b"response_item" and name in ITEM_NAMES:
            self._item_payloads.append(payload)
        elif kind == b"event_msg" and name in MESSAGE_NAMES:
            self._message_payloads.append(payload)
        elif kind == b"turn_context":
            self._turn_context = payload
            return
        elif kind == b"event_msg" and name == REVERTED.encode():
            self.taken_back.take(parse_object(payload) or {}, number)
        elif kind == b"event_msg" and name in GOAL_LINES:
            self.goal = payload
            return
        elif kind == b"event_msg" and name:
            return  # turn and item events, which the conversation API does not replay on a resume
        else:
            self.validate_batches()
            self._add_parsed(line)
            return
        if len(self._item_payloads) >= BATCH or len(self._message_payloads) >= BATCH:
            self.validate_batches()

    def validate_batches(self) -> None:
        """Validates the pending payloads."""
        before = len(self.items) + len(self.messages)
        items, self._item_payloads = self._item_payloads, []
        messages, self._message_payloads = self._message_payloads, []
        good_items = _all_of(item_batch(), items)
        self.items += _items_among(items) if good_items is None else good_items
        good_messages = _all_of(message_batch(), messages)
        self.messages += _messages_among(messages) if good_messages is None else good_messages
        self.skipped += len(items) + len(messages) - (len(self.items) + len(self.messages) - before)

    def last_model(self) -> str | None:
        settings = parse_object(self._turn_context) if self._turn_context else None
        model = settings.get("model") if settings else None
        return model if isinstance(model, str) else None

    def _add_parsed(self, line: bytes) -> None:
        stored = parse_line(line)
        if stored is None:
            self.skipped += not is_blank(line)
        elif isinstance(stored.payload, SessionMetaLine):
            self.meta = self.meta or stored.payload
        elif isinstance(stored.payload, CompactedItem | KnownItem):
            self.items.append(stored.payload)
        elif isinstance(stored.payload, TurnContextItem):
            self._turn_context = stored.payload.to_json()
        elif not isinstance(stored.payload, OtherItem | StoredEvent) and is_persisted(stored.payload):
            self.messages.append(stored.payload)


def _all_of(adapter: TypeAdapter[list[Kind]], payloads: list[bytes]) -> list[Kind] | None:
    """The values of these payloads; None if any of them is invalid, or is not exactly one value."""
    try:
        values = adapter.validate_json(array_of(payloads))
    except ValidationError:
        return None
    return values if len(values) == len(payloads) else None


def _items_among(payloads: list[bytes]) -> list[HistoryLine]:
    found = (parse_response_item(parse_object(payload)) for payload in payloads)
    return [item for item in found if not isinstance(item, OtherItem)]


def _messages_among(payloads: list[bytes]) -> list[EventMsg]:
    found = (parse_event_msg(parse_object(payload)) for payload in payloads)
    return [event for event in found if event is not None]
