"""Converts the engine's events to the lines that a rollout stores, and the text of unfinished items to pieces for the
journal beside it. Pure.

The events that codex 0.58 stores are stored in the same form, so that it can read these files. A conversation that a
client follows by turns and items is stored *with identity*: turns and items keep their ids and times. A file of the
*paginated* form, that of codex since 0.159, has a line for each item (`item_lines`), followed by the older events for
readers that do not know the form. In other files, identity is stored in additional fields and lines beside those
events, which other readers ignore. A rollout never has deltas, nor output of a running command.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from app_server.engine.storage.stored_item_lines import BY_CRASH, ITEM_COMPLETED, TURN_ITEM, item_line
from app_server_protocol.base import tag_of
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.engine import events, items
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.item_text import ItemText, Part
from app_server_protocol.engine.legacy import legacy_events, legacy_notice
from app_server_protocol.engine.notices import TokenUsageUpdated, UndoCompleted
from app_server_protocol.events import turn_events
from app_server_protocol.rollout import StoredEvent
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server_protocol.events.msg import EventMsg

GOAL_UPDATED, GOAL_CLEARED = "goal_updated", "goal_cleared"
"""Types of lines about the goal of a conversation. The last such line counts."""

MARKER_ROOM = 64
OUTPUT_CAP = 32 * 1024
"""Characters of a command's output that its item keeps: some clients read lines of at most 64 KiB (asyncio's
default).
"""

ALWAYS = (
    items.UserMessage,
    items.AgentMessage,
    items.Reasoning,
    items.EnteredReview,
    items.ExitedReview,
    items.ContextCompaction,
)
"""Items whose older events are stored with and without identity."""


def stored_events(
    event: events.SessionEvent, *, identity: bool, paginated: str | None = None
) -> Sequence[StoredEvent]:
    """Return the lines for one event, in order; none for most kinds of events. `paginated`: the id of the thread, if
    its file has the paginated form, which always has identity; None for another form.
    """
    inner, identity = event.event, identity or paginated is not None
    match inner:
        case events.ItemCompleted() if paginated is not None:
            return _paginated_item(inner, event.turn_id, paginated)
        case events.ItemCompleted():
            return _item(inner, event.turn_id, identity=identity)
        case events.TurnStarted():
            return [turn_started_line(event.turn_id, inner)] if identity else ()
        case events.TurnEnded():
            return _turn_end(inner, event.turn_id, identity=identity)
        case events.GoalUpdated(goal=goal):
            return [_bare(GOAL_UPDATED, {"goal": asdict(goal)})]
        case events.GoalCleared():
            return [_bare(GOAL_CLEARED, {})]
        case TokenUsageUpdated() | UndoCompleted():
            return [_stored(legacy_notice(inner), {"turn_id": event.turn_id} if identity else {})]
        case _:
            return ()


def turn_started_line(turn_id: str | None, event: events.TurnStarted) -> StoredEvent:
    extra = {
        "turn_id": turn_id,
        "started_at": int(event.started_at),
        "model_context_window": event.model_context_window,
        "kind": event.kind.value,
    }
    return _bare("task_started", extra)


def capped(text: str, cap: int = OUTPUT_CAP) -> str:
    """Return `text`, or its head and tail if it has more than `cap` characters. The result never has more."""
    if len(text) <= cap:
        return text
    half = (cap - MARKER_ROOM) // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"


def kept_item(item: items.Item) -> items.Item:
    """Return a completed item for storage and display: command output is truncated to `OUTPUT_CAP`."""
    if isinstance(item, items.CommandExecution):
        return replace(item, output=capped(item.output), stdout="", stderr="", shown_output="")
    return item


def _item(event: events.ItemCompleted, turn_id: str | None, *, identity: bool) -> Sequence[StoredEvent]:
    item = event.item
    times = {"started_at_ms": event.started_at_ms, "completed_at_ms": event.at_ms}
    if event.cut or not isinstance(item, ALWAYS):
        kept = {"cut": event.cut, "item": items.item_to_value(kept_item(item))}
        return [_bare(TURN_ITEM, {"turn_id": turn_id, **times, **kept})] if identity else ()
    shows_raw = isinstance(item, items.Reasoning) and item.show_content
    older = legacy_events(item, raw_reasoning=shows_raw)
    if not identity:
        # codex 0.58 stores a user message that joined a running turn only as an entry of the history.
        hidden = isinstance(item, items.UserMessage) and not event.announced
        return () if hidden else [_stored(each, {}) for each in older]
    if not older or not _is_covered_by_legacy(item):
        # The line of the last legacy event contains the whole item; without legacy events, the item has its own line.
        whole = {"turn_id": turn_id, **times, "item": items.item_to_value(item)}
        return [*(_stored(each, {"item_id": item.id}) for each in older), _bare(TURN_ITEM, whole)]
    extra = {"turn_id": turn_id, "item_id": item.id, **times}
    if isinstance(item, items.AgentMessage) and item.phase is not None:
        extra["phase"] = item.phase
    return [_stored(each, extra) for each in older]


def _paginated_item(event: events.ItemCompleted, turn_id: str | None, thread_id: str) -> list[StoredEvent]:
    item, times = kept_item(event.item), (event.started_at_ms, event.at_ms)
    line = _bare(ITEM_COMPLETED, item_line(thread_id, turn_id, times, item, cut=event.cut))
    hidden = isinstance(item, items.UserMessage) and not event.announced
    if event.cut or hidden or not isinstance(item, ALWAYS):
        return [line]
    older = legacy_events(item, raw_reasoning=isinstance(item, items.Reasoning) and item.show_content)
    return [line, *(_stored(each, {}) for each in older)]


def cut_item_events(
    item: items.Item, turn_id: str | None, started_ms: int, paginated: str | None = None
) -> list[StoredEvent]:
    """Return the lines for an item that a crash cut off. Older readers see it, too, unlike one that an interrupt cut
    off, because the history has it. `paginated`: the id of the thread, if its file has the paginated form; else None.
    """
    older: Sequence[EventMsg] = ()
    if isinstance(item, ALWAYS):
        older = legacy_events(item, raw_reasoning=isinstance(item, items.Reasoning) and item.show_content)
    if paginated is not None:
        line = item_line(paginated, turn_id, (started_ms, 0), item, cut=True)
        return [_bare(ITEM_COMPLETED, {**line, BY_CRASH: True}), *(_stored(each, {}) for each in older)]
    whole = {"turn_id": turn_id, "started_at_ms": started_ms, "cut": True, "item": items.item_to_value(item)}
    return [*(_stored(each, {"item_id": item.id}) for each in older), _bare(TURN_ITEM, whole)]


def _is_covered_by_legacy(item: items.Item) -> bool:
    """Return whether the older events contain all of the item, so that it can be restored from them."""
    match item:
        case items.UserMessage():
            plain = item.client_id is None and item.sent is None
            return plain and len(item.content) == 1 and item.content[0].type == "text"
        case items.AgentMessage():
            return len(item.content) == 1
        case items.Reasoning():
            return not item.content and not item.show_content
        case _:
            return False


def _turn_end(event: events.TurnEnded, turn_id: str | None, *, identity: bool) -> Sequence[StoredEvent]:
    times = {
        "turn_id": turn_id,
        "started_at": None if event.started_at is None else int(event.started_at),
        "completed_at": int(event.ended_at),
        "duration_ms": None if event.seconds is None else round(event.seconds * 1000),
    }
    if event.status is events.TurnStatus.INTERRUPTED:
        assert event.reason is not None
        return [_stored(turn_events.TurnAbortedEvent(reason=event.reason), times if identity else {})]
    if not identity:
        return ()
    ended: dict[str, Json] = {"last_agent_message": event.last_agent_message, **times}
    if event.error is not None:
        message, error_class, status, details = event.error
        known = {"class": error_class, "http_status": status, "details": details}
        ended["error"] = {"message": message, "codex_error_info": _error_info(event.error), **known}
    return [_bare("task_complete", ended)]


WITH_STATUS: Final = frozenset(
    (
        *(ErrorClass.HTTP_CONNECTION_FAILED, ErrorClass.RESPONSE_STREAM_CONNECTION_FAILED),
        *(ErrorClass.RESPONSE_STREAM_DISCONNECTED, ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS),
    )
)
"""Error classes that codex stores with the HTTP status."""
_UNKNOWN_THERE: Final = (ErrorClass.OUTPUT_LIMIT, ErrorClass.REFUSED)


def _error_info(error: TurnError) -> Json:
    """Return the class of an error in the form in which codex stores it."""
    kind = error.error_class
    if kind is None or kind in _UNKNOWN_THERE:
        return ErrorClass.OTHER.value
    return {kind.value: {"http_status_code": error.http_status}} if kind in WITH_STATUS else kind.value


def _stored(event: JsonSerializable, extra: Mapping[str, Json]) -> StoredEvent:
    return StoredEvent(str(tag_of(event)), event.to_json(), extra)


def _bare(kind: str, extra: Mapping[str, Json]) -> StoredEvent:
    return StoredEvent(kind, json.dumps({"type": kind}, separators=(",", ":")).encode(), extra)


MOST_UNKEPT: Final = 4096
"""Maximum size of text that clients may have been sent and the journal lacks, in bytes. The outbox also limits the
time.
"""


TEXT: Final = "text"
"""Type of a journal's line about the text of an unfinished item."""


class TextPiece(Struct, frozen=True):
    """A line of the journal about an unfinished item."""

    turn: str | None = None
    """Id of the turn; None if the conversation is stored without identity."""
    item: str = ""
    text: str = ""
    at: int = 0
    """Number of characters of the part that come before this text."""
    summary: bool = False
    index: int = 0
    """Index of the part, in the summary or the content of reasoning."""
    begun: Mapping[str, Json] | None = None
    """The item as it began, in the first piece of the item; None in other pieces."""
    ended: bool = False
    """Whether the item has ended, so that its pieces no longer count."""

    def to_json(self) -> bytes:
        said = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(said, separators=(",", ":")).encode("ascii")


class _Followed(Struct):
    """Offsets of the journal in one text."""

    text: ItemText
    seen: int = 0
    """Offset up to which clients may have been sent the text."""
    written: int = 0
    """Offset up to which the journal has the text."""
    at: int = 0
    """Number of characters before `written`."""


class _OpenItem(Struct):
    """An item that has begun and not ended."""

    begun: events.ItemStarted
    turn: str | None = None
    parts: dict[Part, _Followed] = msgspec.field(default_factory=dict)
    size: int = 0
    """Size of the text that the journal lacks, in bytes."""
    is_written: bool = False
    """Whether the journal has text of the item."""

    def grow(self, event: events.ItemTextGrown) -> int:
        """Follow a text up to the offset of the event. Return the size of the text that is new, in bytes."""
        followed = self.parts.get(event.part)
        if followed is None:
            followed = self.parts[event.part] = _Followed(event.text)
        size = 0
        for piece in event.text.pieces[followed.seen : event.end]:
            size += len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        followed.seen = max(followed.seen, event.end)
        self.size += size
        return size

    def pieces(self) -> Iterator[TextPiece]:
        """Yield the pieces that the journal lacks. They count as written from then on."""
        for part, followed in self.parts.items():
            if followed.written == followed.seen:
                continue
            begun: dict[str, Json] | None = None
            if not self.is_written:
                item = items.item_to_value(self.begun.item)
                begun = {"item": item, "started_at_ms": self.begun.at_ms}
            text, at = followed.text.text(followed.written, followed.seen), followed.at
            followed.written, followed.at, self.is_written = followed.seen, at + len(text), True
            yield TextPiece(self.turn, self.begun.item.id, text, at, *part, begun)
        self.size = 0


class StreamJournal(Struct):
    """Follows the texts of all items that have begun and not ended. Their pieces go to the journal as JSON."""

    waiting: int = 0
    """Size of the text that the journal lacks, in bytes."""
    is_due: bool = False
    """Whether the journal has to be written before anything else is sent to clients."""
    _open: dict[tuple[str | None, str], _OpenItem] = msgspec.field(default_factory=dict)
    _ended: list[TextPiece] = msgspec.field(default_factory=list)

    def take(self, emitted: Iterable[events.SessionEvent], *, identity: bool) -> None:
        """Follow all events before they are released. `identity` says whether turns are stored with their ids."""
        for event in emitted:
            turn, inner = event.turn_id, event.event
            if isinstance(inner, events.ItemTextGrown):
                self.follow(event)
            elif isinstance(inner, events.ItemStarted):
                if isinstance(inner.item, items.AgentMessage | items.Reasoning | items.Plan):
                    self._open[turn, inner.item.id] = _OpenItem(inner, turn if identity else None)
            elif isinstance(inner, events.ItemCompleted):
                self._end(turn, inner.item.id)

    def follow(self, event: events.SessionEvent) -> None:
        """Follow how far a text has grown; it may have been followed further already."""
        grown = event.event
        if isinstance(grown, events.ItemTextGrown):
            item = self._open.get((event.turn_id, grown.item_id))
            if item is not None:
                self.waiting += item.grow(grown)
                self.is_due = self.is_due or self.waiting >= MOST_UNKEPT

    def _end(self, turn: str | None, item_id: str) -> None:
        growing = self._open.pop((turn, item_id), None)
        if growing is not None:
            self.waiting -= growing.size
            if growing.is_written:
                self._ended.append(TextPiece(growing.turn, item_id, ended=True))
                self.is_due = True

    def pieces(self) -> list[bytes]:
        """Return the pieces that the journal lacks as JSON. They count as written from then on."""
        found = self._ended
        for growing in self._open.values():
            found += growing.pieces()
        self._ended, self.waiting, self.is_due = [], 0, False
        return [piece.to_json() for piece in found]

    @property
    def is_kept(self) -> bool:
        """Whether the journal has text of an unfinished item."""
        return any(growing.is_written for growing in self._open.values())
