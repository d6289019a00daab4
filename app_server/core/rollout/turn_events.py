"""Converts stored lines into events, for the fold of turns. Pure.

Lines that were stored with identity contain ids and times. Older files have neither: there, a turn begins with a user
message, and ids are derived from the conversation's id and the line number, so that every reading yields the same ids.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from app_server.core.rollout.stored_events import TURN_ITEM
from protocol.base import Json
from protocol.engine.codec import item_from_value
from protocol.engine.errors import ErrorClass, TurnError
from protocol.engine.events import (
    EngineEvent,
    ItemCompleted,
    ItemStarted,
    SessionEvent,
    TurnEnded,
    TurnKind,
    TurnStarted,
    TurnStatus,
)
from protocol.engine.items import (
    AgentMessage,
    ContextCompaction,
    EnteredReview,
    ExitedReview,
    Item,
    Reasoning,
    UserMessage,
)
from protocol.engine.legacy import COMPACTED
from protocol.engine.turns import TurnRenamed
from protocol.events.msg import parse_event_msg
from protocol.events.review import ReviewOutputEvent
from protocol.events.turn import TurnAbortReason
from protocol.ids import hyphenated
from protocol.items import ImageInput, TextInput, UserInput
from protocol.records import dataclass

Line = tuple[int, str, Mapping[str, Json]]
"""Number in the file from 0, `type`, `payload`."""


def turn_events(conversation_id: str, lines: Iterable[Line]) -> Iterator[SessionEvent | TurnRenamed]:
    """The events of all turns, each with an end. A turn without a stored end was interrupted; in old files, which
    store no ends, it counts as completed.
    """
    reader = TurnReader(conversation_id)
    for line in lines:
        yield from reader.read_line(*line)
    yield from reader.finish()


@dataclass(slots=True)
class TurnReader:
    """Reads the lines of one conversation in order. What it keeps of a file is small, so that a reader can start in
    the middle: see `copy`.
    """

    conversation_id: str
    _turn: str | None = None
    _explicit: bool = False
    """Whether the open turn has a stored start."""
    _reasoning: tuple[str, list[str], list[str]] | None = None
    """Id, summary and raw content of the current reasoning."""
    _reasoning_times: tuple[int, int] = (0, 0)
    _after_compaction: bool = False
    _turn_started: float | None = None

    def read_line(
        self, number: int, kind: str, payload: Mapping[str, Json]
    ) -> Iterator[SessionEvent | TurnRenamed]:
        name = payload.get("type") if kind == "event_msg" else None
        if name not in ("agent_reasoning", "agent_reasoning_raw_content"):
            yield from self._end_reasoning()
        after_compaction, self._after_compaction = self._after_compaction, kind == "compacted"
        match name:
            case "task_started":
                yield from self._turn_start(number, payload)
            case "task_complete":
                yield from self._turn_complete(payload)
            case "turn_aborted":
                yield from self._turn_aborted(payload)
            case str() if name == TURN_ITEM:
                yield from self._whole_item(payload)
            case "user_message" | "agent_message" | "entered_review_mode" | "exited_review_mode":
                if "item_id" not in payload or "turn_id" in payload:  # else a whole item follows
                    yield from self._older_item(number, payload, after_compaction=after_compaction)
            case "agent_reasoning" | "agent_reasoning_raw_content":
                yield from self._reasoning_part(number, name, payload)
            case _:
                # Lines between a compaction and its event do not separate them.
                self._after_compaction = self._after_compaction or (
                    after_compaction and name in ("token_count", None)
                )

    def copy(self) -> TurnReader:
        """A reader that goes on from here on its own."""
        other = replace(self)
        if self._reasoning is not None:
            id, summary, content = self._reasoning
            other._reasoning = (id, [*summary], [*content])
        return other

    @property
    def explicit(self) -> bool:
        """Whether the open turn began with a line of its own."""
        return self._explicit

    def finish(self) -> Iterator[SessionEvent]:
        """At the end of the file."""
        yield from self._end_reasoning()
        yield from self._close()

    # --- turns
    def _turn_start(self, number: int, payload: Mapping[str, Json]) -> Iterator[SessionEvent | TurnRenamed]:
        turn_id = _text(payload, "turn_id") or self._derived("turn", number)
        if turn_id == self._turn:
            return
        if payload.get("late") and self._turn is not None:
            yield TurnRenamed(self._turn, turn_id)
            self._turn, self._explicit = turn_id, True
            return
        yield from self._close()
        yield from self._begin(
            turn_id, _kind(payload.get("kind")), _number(payload, "started_at"), explicit=True
        )

    def _begin(
        self, turn_id: str, kind: TurnKind, started_at: float | None, *, explicit: bool
    ) -> Iterator[SessionEvent]:
        self._turn, self._explicit, self._turn_started = turn_id, explicit, started_at
        yield self._event(TurnStarted(kind, None, started_at or 0.0))

    def _turn_complete(self, payload: Mapping[str, Json]) -> Iterator[SessionEvent]:
        error = _error(payload.get("error"))
        status = TurnStatus.COMPLETED if error is None else TurnStatus.FAILED
        yield from self._turn_end(payload, status, error=error)

    def _turn_aborted(self, payload: Mapping[str, Json]) -> Iterator[SessionEvent]:
        try:
            reason = TurnAbortReason(str(payload.get("reason")))
        except ValueError:
            reason = TurnAbortReason.INTERRUPTED
        yield from self._turn_end(payload, TurnStatus.INTERRUPTED, reason=reason)

    def _turn_end(
        self,
        payload: Mapping[str, Json],
        status: TurnStatus,
        *,
        error: TurnError | None = None,
        reason: TurnAbortReason | None = None,
    ) -> Iterator[SessionEvent]:
        turn_id = _text(payload, "turn_id") or self._turn
        if turn_id is None:
            return
        duration = _number(payload, "duration_ms")
        ended = TurnEnded(
            status=status,
            started_at=_number(payload, "started_at"),
            ended_at=_number(payload, "completed_at") or 0.0,
            seconds=None if duration is None else duration / 1000,
            last_agent_message=_text(payload, "last_agent_message"),
            error=error,
            reason=reason,
        )
        yield SessionEvent("", turn_id, ended)
        self._turn = None

    def _close(self) -> Iterator[SessionEvent]:
        """Ends a turn without a stored end."""
        if self._turn is None:
            return
        status = TurnStatus.INTERRUPTED if self._explicit else TurnStatus.COMPLETED
        reason = TurnAbortReason.INTERRUPTED if self._explicit else None
        yield self._event(
            TurnEnded(status=status, started_at=self._turn_started, ended_at=0.0, seconds=None, reason=reason)
        )
        self._turn = None

    # --- items
    def _whole_item(self, payload: Mapping[str, Json]) -> Iterator[SessionEvent]:
        item = item_from_value(payload.get("item"))
        if item is not None:
            started, ended = _times(payload)
            turn_id = _text(payload, "turn_id") or self._turn
            yield from self._item(item, started, ended, turn_id, cut=payload.get("cut") is True)

    def _older_item(
        self, number: int, payload: Mapping[str, Json], *, after_compaction: bool
    ) -> Iterator[SessionEvent]:
        name = payload["type"]
        opens = name in ("user_message", "entered_review_mode")
        if self._turn is None or (opens and not self._explicit):
            yield from self._close()
            kind = TurnKind.REVIEW if name == "entered_review_mode" else TurnKind.REGULAR
            yield from self._begin(self._derived("turn", number), kind, None, explicit=False)
        id = _text(payload, "item_id") or self._derived("item", number)
        item = _older(id, payload, after_compaction=after_compaction)
        if item is not None:
            started, ended = _times(payload)
            yield from self._item(item, started, ended, _text(payload, "turn_id") or self._turn)

    def _reasoning_part(self, number: int, name: str, payload: Mapping[str, Json]) -> Iterator[SessionEvent]:
        if "item_id" in payload and "turn_id" not in payload:
            return
        id = _text(payload, "item_id")
        if (
            self._reasoning is not None
            and id is not None
            and (id != self._reasoning[0] or _times(payload) != self._reasoning_times)
        ):
            yield from self._end_reasoning()
        if self._turn is None:
            yield from self._begin(self._derived("turn", number), TurnKind.REGULAR, None, explicit=False)
        if self._reasoning is None:
            self._reasoning = (id or self._derived("item", number), [], [])
            self._reasoning_times = _times(payload)
        text = _text(payload, "text")
        if text is not None:
            _, summary, content = self._reasoning
            (summary if name == "agent_reasoning" else content).append(text)

    def _end_reasoning(self) -> Iterator[SessionEvent]:
        if self._reasoning is None:
            return
        id, summary, content = self._reasoning
        self._reasoning = None
        item = Reasoning(id, tuple(summary), tuple(content), bool(content))
        yield from self._item(item, *self._reasoning_times, self._turn)

    def _item(
        self, item: Item, started_ms: int, ended_ms: int, turn_id: str | None, *, cut: bool = False
    ) -> Iterator[SessionEvent]:
        yield SessionEvent("", turn_id, ItemStarted(item, started_ms))
        yield SessionEvent("", turn_id, ItemCompleted(item, started_ms, ended_ms, cut))

    def _event(self, event: EngineEvent) -> SessionEvent:
        return SessionEvent("", self._turn, event)

    def _derived(self, what: str, number: int) -> str:
        """An id that is the same for each reading, and unique to this conversation."""
        return derived_id(self.conversation_id, f"{what} {number}")


def derived_id(conversation_id: str, name: str) -> str:
    """The text of `uuid.uuid5(conversation, name)`; written out, since old files need thousands of them at once."""
    hashed = _hashed_space(conversation_id).copy()
    hashed.update(name.encode())
    digest = bytearray(hashed.digest())
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    return hyphenated(digest[:16].hex())


@lru_cache(maxsize=16)
def _hashed_space(conversation_id: str) -> hashlib._Hash:
    try:
        space = uuid.UUID(conversation_id).bytes
    except ValueError:
        space = uuid.uuid5(uuid.NAMESPACE_OID, conversation_id).bytes
    return hashlib.sha1(space, usedforsecurity=False)


def _older(id: str, payload: Mapping[str, Json], *, after_compaction: bool) -> Item | None:
    match payload:
        case {"type": "user_message", "message": str(message)}:
            images = payload.get("images")
            content: list[UserInput] = [TextInput(text=message)] if message or not images else []
            if isinstance(images, list):
                content += [ImageInput(image_url=image) for image in images if isinstance(image, str)]
            return UserMessage(id, tuple(content))
        case {"type": "agent_message", "message": str(message)}:
            if after_compaction and message == COMPACTED:
                return ContextCompaction(id)
            return AgentMessage(id, (message,), _text(payload, "phase"))
        case {"type": "entered_review_mode"}:
            return EnteredReview(id, _text(payload, "prompt") or "", _text(payload, "user_facing_hint") or "")
        case {"type": "exited_review_mode"}:
            return ExitedReview(id, _review(payload))
        case _:
            return None


def _review(payload: Mapping[str, Json]) -> ReviewOutputEvent | None:
    event = parse_event_msg(dict(payload))
    return getattr(event, "review_output", None)


def _times(payload: Mapping[str, Json]) -> tuple[int, int]:
    """Start and end in milliseconds; 0 if the line has none."""
    return int(_number(payload, "started_at_ms") or 0), int(_number(payload, "completed_at_ms") or 0)


def _text(payload: Mapping[str, Json], name: str) -> str | None:
    value = payload.get(name)
    return value if isinstance(value, str) else None


def _number(payload: Mapping[str, Json], name: str) -> float | None:
    value = payload.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _kind(value: Json) -> TurnKind:
    try:
        return TurnKind(value)
    except ValueError:
        return TurnKind.REGULAR


def _error(value: Json) -> TurnError | None:
    if not isinstance(value, dict) or not isinstance(value.get("message"), str):
        return None
    try:
        error_class = ErrorClass(str(value.get("class")))
    except ValueError:
        error_class = None
    status = value.get("http_status")
    return TurnError(
        value["message"], error_class, status if isinstance(status, int) else None, _text(value, "details")
    )
