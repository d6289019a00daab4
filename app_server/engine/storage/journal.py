"""Reads the journal of a crashed server, and finds what its rollout lacks: items that clients were sent, and the text
so far of unfinished items. Reads only; the holder of the rollout's lock appends what is found.

An item that a crash cut off is stored like one that an interrupt cut off, and its turn as interrupted. Older readers
see its text as that of a finished message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.storage.disk import opened
from app_server.engine.storage.encode import TEXT, TextPiece, cut_item_events
from app_server.engine.storage.history_calls import cut_item
from app_server.engine.storage.line_reader import last_turn_start, paginated_thread, raw_lines, turn_contexts
from app_server.engine.storage.record import (
    OLDER_EVENTS,
    REVERTED,
    JournalLine,
    StoredRecord,
    parse_journal_line,
    parse_object,
    read_record,
    text_of,
)
from app_server.engine.storage.rollout_names import journal_path
from app_server.engine.storage.stored_item_lines import ITEM_COMPLETED, TURN_ITEM, item_of_line
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.engine.item_text import WHOLE, Part, with_text
from app_server_protocol.engine.items import AgentMessage, Item, Plan, Reasoning, item_from_value
from app_server_protocol.events.turn_events import TurnAbortedEvent
from app_server_protocol.responses import (
    CallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ResponseItem,
    aborted_output,
    call_key,
)
from app_server_protocol.rollout import StoredEvent, stored_line
from app_server_protocol.values import replace

MAX_JOURNAL_BYTES: Final = 256 * 1024 * 1024
_TEXT_MARK: Final = f'"type":"{TEXT}","after":'.encode()
_MESSAGES: Final = ("agent_message", "agent_reasoning", "agent_reasoning_raw_content")
_TURN_EDGES: Final = ("task_started", "task_complete", "turn_aborted", "user_message", REVERTED)
"""Events across which no item of the model continues."""
_ENDS: Final = (*_MESSAGES, *_TURN_EDGES, TURN_ITEM, ITEM_COMPLETED)

Text = AgentMessage | Reasoning | Plan


class RecoveredText(Struct):
    """An item that has begun and not ended, with its text so far."""

    turn: str | None
    begun: Text
    started_ms: int
    after: int
    """Size of the rollout in bytes when the last piece was written."""
    parts: dict[Part, str] = msgspec.field(default_factory=dict)
    lacks_some: bool = False
    """Whether a piece is missing, because its line is damaged. Later pieces then do not count."""

    def add(self, piece: TextPiece, after: int) -> None:
        part = (piece.summary, piece.index)
        known = self.parts.get(part, "")
        self.lacks_some = self.lacks_some or piece.at > len(known)
        if not self.lacks_some:
            self.parts[part] = known[: piece.at] + piece.text
            self.after = after

    @property
    def item(self) -> Item:
        return with_text(self.begun, self.parts)

    @property
    def message(self) -> MessageItem | None:
        """The message for the model's history; None if there is none. Reasoning is never sent without the provider's
        seal.
        """
        match self.item:
            case AgentMessage(content=(text,), phase=phase) if text:
                return MessageItem(role="assistant", content=(OutputText(text=text),), phase=phase)
            case Plan(text=text) if text:
                said = f"<proposed_plan>\n{text}"
                return MessageItem(role="assistant", content=(OutputText(text=said),))
            case _:
                return None

    def is_ended_by(self, record: StoredRecord) -> bool:
        """Return whether a line after the last piece says that the item has ended."""
        if record.kind != "event_msg" or record.is_repetition or record.name not in _ENDS:
            return False
        payload = record.value() or {}
        if record.name in (TURN_ITEM, ITEM_COMPLETED):
            item = payload.get("item")
            return isinstance(item, dict) and item.get("id") == self.begun.id
        if record.name in _MESSAGES:
            whole_item_follows = "item_id" in payload and "turn_id" not in payload
            return not whole_item_follows and payload.get("item_id", self.begun.id) == self.begun.id
        return True

    def told_by(self, record: StoredRecord) -> MessageItem | None:
        """Return the message for the model's history, if `record` tells clients that the item has ended; None if it
        does not, or if the item was cut: then the request to the model was made again.
        """
        payload = record.value() or {}
        if record.name in _TURN_EDGES or payload.get("cut") is True:
            return None
        text = payload.get("message")
        if record.name == ITEM_COMPLETED and isinstance(
            said := item_of_line(record.name, payload), AgentMessage
        ):
            text = said.text
        if isinstance(self.begun, AgentMessage) and isinstance(text, str):
            return replace(self, parts={WHOLE: text}).message
        return self.message


class CrashRecovery(Struct, frozen=True):
    """Lines that have to be appended to the rollout, in this order."""

    items: tuple[ResponseItem, ...] = ()
    """Whole items of the history."""
    messages: tuple[ResponseItem, ...] = ()
    """Messages that were cut off."""
    events: tuple[StoredEvent, ...] = ()
    """Events that show clients the items that were cut off, and that their turns were interrupted."""
    of_journal: bool = False
    """Whether there is a journal, which was read."""
    paginated: bool = False
    """Whether the file has the paginated form, in which events for older readers repeat items."""

    def lines(self) -> list[bytes]:
        """Return the items and events as lines, as the decoder gets them."""
        told = (each for each in self.events if not (self.paginated and each.type in OLDER_EVENTS))
        return [stored_line("", line) for line in (*with_outputs(self.items, ()), *told)]


NOTHING: Final = CrashRecovery()


def leftover_of(rollout: Path) -> CrashRecovery:
    """Return what a crashed server sent to clients and did not record in the rollout, in order. Raises
    `RolloutUnreadable` if there is a journal that cannot be read: a server that continued without it would lose its
    content.
    """
    items: list[JournalLine] = []
    texts: dict[tuple[str | None, str], RecoveredText] = {}
    journal = journal_path(rollout)
    try:
        with opened(journal) as fd:
            for raw in raw_lines(fd, 1, end=MAX_JOURNAL_BYTES):
                if (line := parse_journal_line(raw.data)) is not None:
                    items.append(line)
                elif _TEXT_MARK in raw.data:
                    _take(texts, parse_object(raw.data) or {})
    except RolloutUnreadable:
        if journal.is_file() and not journal.is_symlink():
            raise
        return NOTHING
    places = [line.after for line in items] + [text.after for text in texts.values()]
    if not places:
        return CrashRecovery(of_journal=True)
    recorded, ended_items = Counter[bytes](), set[str]()
    open_texts = [text for text in texts.values() if any(text.parts.values())]
    messages: list[MessageItem | None] = []
    with opened(rollout) as fd:
        paginated = paginated_thread(rollout, fd)
        for raw in raw_lines(fd, 1, min(places)):
            record = read_record(raw.data)
            if record is not None:
                recorded[record.payload] += 1
                if record.name in (TURN_ITEM, ITEM_COMPLETED):
                    ended_items.add(_item_id(record))
                ended = [text for text in open_texts if raw.begin >= text.after and text.is_ended_by(record)]
                # The history may lack the message: a crash may come between this line and the journal's line with the
                # item.
                messages += (text.told_by(record) for text in ended)
                open_texts = [text for text in open_texts if text not in ended]
        turn, context = last_turn_start(fd), next(turn_contexts(fd), {})
    messages += (text.message for text in open_texts)
    new = [line for line in items if _is_new(line.payload, recorded)]
    has_lines = paginated is not None or "kind" in turn
    calls = [line for line in new if has_lines and _call_id(line.item) not in ended_items]
    recorded.update(line.payload for line in items)  # a message in these items is not recovered a second time
    return CrashRecovery(
        items=tuple(line.item for line in new),
        messages=tuple(each for each in messages if each is not None and _is_new(each.to_json(), recorded)),
        events=(
            *(event for line in calls for event in _cut_call(line, turn, context, paginated)),
            *(each for each in _events(open_texts, paginated) if _is_new(each.to_json(), recorded)),
        ),
        of_journal=True,
        paginated=paginated is not None,
    )


def _call_id(item: ResponseItem) -> str | None:
    return call_key(item)[1] if isinstance(item, CallItem) else None


def _item_id(record: StoredRecord) -> str:
    item = (record.value() or {}).get("item")
    return str(item.get("id")) if isinstance(item, dict) else ""


def _cut_call(
    line: JournalLine, turn: Mapping[str, Json], context: Mapping[str, Json], paginated: str | None
) -> list[StoredEvent]:
    """Return the line about the item of a call that a crash cut; none if the entry is not such a call. `turn`,
    `context`: the begin and the settings of the last turn.
    """
    if not isinstance(line.item, CallItem):
        return []
    record = StoredRecord.of("response_item", parse_object(line.payload) or {})
    item = cut_item(record, text_of(context, "cwd") or "/")
    return [] if item is None else cut_item_events(item, text_of(turn, "turn_id"), 0, paginated)


def with_outputs(items: Sequence[ResponseItem], before: Iterable[object]) -> list[ResponseItem]:
    """Return these items, with an "aborted" output for each call without one. `before`: lines of the history that may
    have the outputs.
    """
    outputs = (item for item in (*before, *items) if isinstance(item, OutputItem))
    answered = {"", *(output.call_id for output in outputs)}
    calls = (item for item in items if isinstance(item, CallItem))
    lonely = (call for call in calls if call_key(call)[1] not in answered)
    return [*items, *(aborted_output(call) for call in lonely)]


def _is_new(payload: bytes, recorded: Counter[bytes]) -> bool:
    if not recorded[payload]:
        return True
    recorded[payload] -= 1
    return False


def _take(texts: dict[tuple[str | None, str], RecoveredText], line: dict[str, Json]) -> None:
    """Apply a line about text; a damaged line is ignored."""
    after = line.get("after")
    try:
        piece = msgspec.convert(line.get("payload"), TextPiece)
    except msgspec.ValidationError:
        return
    if not isinstance(after, int):
        return
    key = (piece.turn, piece.item)
    if piece.ended:
        texts.pop(key, None)
    elif piece.begun is not None:
        item, started = item_from_value(piece.begun.get("item")), piece.begun.get("started_at_ms")
        texts.pop(key, None)
        if isinstance(item, AgentMessage | Reasoning | Plan):
            started_ms = started if isinstance(started, int) else 0
            texts[key] = RecoveredText(piece.turn, item, started_ms, after)
    if key in texts:
        texts[key].add(piece, after)


def _events(texts: Sequence[RecoveredText], paginated: str | None) -> Iterable[StoredEvent]:
    for text in texts:
        yield from cut_item_events(text.item, text.turn, text.started_ms, paginated)
    for turn in dict.fromkeys(text.turn for text in texts):
        aborted = TurnAbortedEvent(reason=TurnAbortReason.INTERRUPTED)
        yield StoredEvent("turn_aborted", aborted.to_json(), {} if turn is None else {"turn_id": turn})
