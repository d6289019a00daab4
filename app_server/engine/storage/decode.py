"""Converts stored records into events, from which the fold builds turns. Pure.

Lines that were stored with identity contain ids and times. Older files have neither. In an older file, a turn begins
with a user message, and ids are derived from the conversation's id and the line number, so that every reading yields
the same ids.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from app_server.engine.storage.older_items import CALLS_ENDED, member_of, older_item, stored_error
from app_server.engine.storage.record import OLDER_EVENTS, RevertedRanges, StoredRecord, text_of
from app_server.engine.storage.stored_item_lines import ITEM_COMPLETED, TURN_ITEM, is_damaged, item_of_line
from app_server.engine.storage.turn_fold import TurnFold, WholeHistory
from app_server_protocol.encoding import Json
from app_server_protocol.engine import events, items
from app_server_protocol.engine.errors import TurnError
from app_server_protocol.values import replace

MOST_NUMBER = 2**53
"""Maximum of stored times and durations. A number beyond it, or an infinite one, counts as missing."""

_VARIANTS = {f"{digit:x}": f"{digit & 3 | 8:x}" for digit in range(16)}
"""Variant digit of a UUID, by the hash digit in its place: the first two bits of the variant are 10."""


def times_of(payload: Mapping[str, Json]) -> tuple[int, int]:
    """Return the start and the end in milliseconds since 1970; 0 for a time that the line does not have."""
    if "started_at_ms" not in payload and "completed_at_ms" not in payload:
        return 0, 0
    return int(number_of(payload, "started_at_ms") or 0), int(number_of(payload, "completed_at_ms") or 0)


def number_of(payload: Mapping[str, Json], name: str) -> float | None:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -MOST_NUMBER <= value <= MOST_NUMBER else None


def derived_id(conversation_id: str, name: str) -> str:
    """Return the text of `uuid.uuid5(conversation, name)`. It is computed here without that function, because old files
    need thousands of ids at once.
    """
    hashed = _hashed_space(conversation_id).copy()
    hashed.update(name.encode())
    digits = hashed.hexdigest()
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


@lru_cache(maxsize=16)
def _hashed_space(conversation_id: str) -> hashlib._Hash:
    try:
        space = uuid.UUID(conversation_id).bytes
    except ValueError:
        space = uuid.uuid5(uuid.NAMESPACE_OID, conversation_id).bytes
    return hashlib.sha1(space, usedforsecurity=False)


_Events = list[events.SessionEvent | events.TurnRenamed]

OF_TURNS: Final = frozenset(
    (
        *("task_started", "task_complete", "turn_aborted", TURN_ITEM, ITEM_COMPLETED, *OLDER_EVENTS),
        *("patch_apply_end", "mcp_tool_call_end", "context_compacted"),
    )
)
"""Events whose payload is parsed. Most of a file is the model's history, which has no information about turns."""


_OLDER: Final = (
    *("user_message", "agent_message", "entered_review_mode", "exited_review_mode"),
    *(*CALLS_ENDED, "context_compacted"),
)
"""Events that stand for one item each."""


class StoredTurns:
    """Builds all turns of a conversation in one pass over its records, including reverted ones."""

    def __init__(self, conversation_id: str, reverted_lines: RevertedRanges) -> None:
        self._conversation_id, self._taken_back = conversation_id, reverted_lines
        self._reader, self._fold = TurnReader(conversation_id), TurnFold()
        self._gone: TurnReader | None = None

    def take(self, number: int, record: StoredRecord) -> None:
        if number in self._taken_back:
            self._gone = self._gone or TurnReader(self._conversation_id)
            self._fold.ids.pass_over(self._gone.take(number, record))
        else:
            self._gone = None
            self._fold.apply_all(self._reader.take(number, record))

    @property
    def damaged(self) -> int:
        """Number of lines about an item of a known kind that cannot be read."""
        return self._reader.damaged

    def finish(self) -> WholeHistory:
        self._fold.apply_all(self._reader.finish())
        return WholeHistory(tuple(self._fold.turns), self._fold.ids)


class _OpenReasoning(Struct):
    """The reasoning item whose parts are being read."""

    id: str
    times: tuple[int, int]
    summary: list[str] = []
    content: list[str] = []

    def item(self) -> items.Reasoning:
        return items.Reasoning(self.id, tuple(self.summary), tuple(self.content), bool(self.content))

    def copy(self) -> _OpenReasoning:
        return replace(self, summary=[*self.summary], content=[*self.content])


class TurnReader(Struct):
    """Converts the records of one conversation to events, in order. Each turn gets an end. A turn without a stored end
    was interrupted; in old files, which store no ends, it counts as completed. A reader has little state, so that
    another reader can continue from the middle of a file: see `copy`.
    """

    conversation_id: str
    _turn: str | None = None
    explicit: bool = False
    """Whether the open turn has a stored start."""
    _reasoning: _OpenReasoning | None = None
    _after_compaction: bool = False
    _turn_started: float | None = None
    _last_turn: str | None = None
    """Id of the last turn that a line named."""
    _review: items.ExitedReview | None = None
    """The previous item, if it was the end of a review; else None."""
    damaged: int = 0
    """Number of lines about an item of a known kind that cannot be read."""

    def take(self, number: int, record: StoredRecord) -> _Events:
        """Return the events of a record. `number` is its line number in the file, counted from 0."""
        name = record.name if record.kind == "event_msg" and not record.is_repetition else None
        if name is None and self._reasoning is None and not self._after_compaction:
            self._after_compaction = record.kind == "compacted"
            return []
        payload = record.value() if name in OF_TURNS else {}
        if payload is None:
            return []
        out: _Events = []
        if name not in ("agent_reasoning", "agent_reasoning_raw_content"):
            self._end_reasoning(out)
        after_compaction, self._after_compaction = self._after_compaction, record.kind == "compacted"
        match name:
            case str() if name in _OLDER:
                if "item_id" not in payload or "turn_id" in payload:  # else a whole item follows
                    self._older_item(out, number, payload, after_compaction=after_compaction)
            case "task_started":
                self._turn_start(out, number, payload)
            case "task_complete":
                error = stored_error(payload.get("error"))
                status = events.TurnStatus.COMPLETED if error is None else events.TurnStatus.FAILED
                self._turn_end(out, payload, status, error=error)
            case "turn_aborted":
                self._turn_end(out, payload, events.TurnStatus.INTERRUPTED)
            case "turn_item" | "item_completed":
                self._whole_item(out, number, name, payload)
            case "agent_reasoning" | "agent_reasoning_raw_content":
                self._reasoning_part(out, number, name, payload)
            case _:
                # Other lines between a compaction and its event are ignored.
                self._after_compaction = self._after_compaction or (
                    after_compaction and name in ("token_count", None)
                )
        return out

    def copy(self) -> TurnReader:
        """Return a copy of the reader, which continues independently."""
        return replace(self, _reasoning=None if self._reasoning is None else self._reasoning.copy())

    def finish(self) -> _Events:
        """Return the events at the end of the file."""
        out: _Events = []
        self._end_reasoning(out)
        self._close(out)
        return out

    # --- turns
    def _turn_start(self, out: _Events, number: int, payload: Mapping[str, Json]) -> None:
        turn_id = text_of(payload, "turn_id") or self._derived("turn", number)
        if turn_id == self._turn or _works_for(self._last_turn, payload):
            return
        if payload.get("late") and self._turn is not None:
            out.append(events.TurnRenamed(self._turn, turn_id))
            self._turn, self.explicit = turn_id, True
            return
        self._close(out)
        self._begin(
            out,
            turn_id,
            member_of(events.TurnKind, payload.get("kind")) or events.TurnKind.REGULAR,
            number_of(payload, "started_at"),
            explicit=True,
        )

    def _begin(
        self, out: _Events, turn_id: str, kind: events.TurnKind, started_at: float | None, *, explicit: bool
    ) -> None:
        self._turn, self.explicit, self._turn_started = turn_id, explicit, started_at
        self._review = None  # only a message of the same turn can repeat the text of its review
        self._last_turn = turn_id
        out.append(self._event(events.TurnStarted(kind, None, started_at or 0.0)))

    def _begin_derived(
        self, out: _Events, number: int, kind: events.TurnKind = events.TurnKind.REGULAR
    ) -> None:
        """Begin a turn whose beginning is not stored."""
        self._begin(out, self._derived("turn", number), kind, None, explicit=False)

    def _turn_end(
        self,
        out: _Events,
        payload: Mapping[str, Json],
        status: events.TurnStatus,
        *,
        error: TurnError | None = None,
    ) -> None:
        turn_id = text_of(payload, "turn_id") or self._turn
        if turn_id is None:
            return
        duration = number_of(payload, "duration_ms")
        ended = events.TurnEnded(
            status=status,
            started_at=number_of(payload, "started_at"),
            ended_at=number_of(payload, "completed_at") or 0.0,
            seconds=None if duration is None else duration / 1000,
            error=error,
        )
        out.append(events.SessionEvent("", turn_id, ended))
        self._turn = None

    def _close(self, out: _Events) -> None:
        """End a turn without a stored end."""
        if self._turn is None:
            return
        status = events.TurnStatus.INTERRUPTED if self.explicit else events.TurnStatus.COMPLETED
        ended = events.TurnEnded(status=status, started_at=self._turn_started, ended_at=0.0, seconds=None)
        out.append(self._event(ended))
        self._turn = None

    # --- items
    def _whole_item(self, out: _Events, number: int, name: str, payload: Mapping[str, Json]) -> None:
        if _is_of_another(self.conversation_id, self._turn, payload):
            return
        item = item_of_line(name, payload)
        if item is None:
            self.damaged += is_damaged(name, payload)
            return
        turn_id = text_of(payload, "turn_id") or None
        if turn_id is None and self._turn is None:  # a crash lost the line that began the turn
            self._begin_derived(out, number)
        cut = payload.get("cut") is True
        self._last_turn = turn_id or self._turn
        review, self._review = self._review, item if isinstance(item, items.ExitedReview) else None
        if name == ITEM_COMPLETED and review is not None and _repeats(review, item):
            return
        self._item(out, item, times_of(payload), self._last_turn, cut=cut)

    def _older_item(
        self, out: _Events, number: int, payload: Mapping[str, Json], *, after_compaction: bool
    ) -> None:
        name = payload["type"]
        opens = name in ("user_message", "entered_review_mode")
        if self._turn is None or (opens and not self.explicit):
            self._close(out)
            kind = events.TurnKind.REVIEW if name == "entered_review_mode" else events.TurnKind.REGULAR
            self._begin_derived(out, number, kind)
        id = text_of(payload, "item_id") or text_of(payload, "call_id") or self._derived("item", number)
        item = older_item(id, payload, after_compaction=after_compaction)
        if item is not None:
            self._item(out, item, times_of(payload), text_of(payload, "turn_id") or self._turn)

    def _reasoning_part(self, out: _Events, number: int, name: str, payload: Mapping[str, Json]) -> None:
        if "item_id" in payload and "turn_id" not in payload:
            return
        id, times, before = text_of(payload, "item_id"), times_of(payload), self._reasoning
        if before is not None and id is not None and (id, times) != (before.id, before.times):
            self._end_reasoning(out)
        if self._turn is None:
            self._begin_derived(out, number)
        if self._reasoning is None:
            self._reasoning = _OpenReasoning(id or self._derived("item", number), times)
        text = text_of(payload, "text")
        if text is not None:
            reasoning = self._reasoning
            (reasoning.summary if name == "agent_reasoning" else reasoning.content).append(text)

    def _end_reasoning(self, out: _Events) -> None:
        if self._reasoning is not None:
            self._item(out, self._reasoning.item(), self._reasoning.times, self._turn)
            self._reasoning = None

    def _item(
        self,
        out: _Events,
        item: items.Item,
        times: tuple[int, int],
        turn_id: str | None,
        *,
        cut: bool = False,
    ) -> None:
        out.append(events.SessionEvent("", turn_id, events.ItemCompleted(item, *times, cut)))

    def _event(self, event: events.EngineEvent) -> events.SessionEvent:
        return events.SessionEvent("", self._turn, event)

    def _derived(self, what: str, number: int) -> str:
        """Return an id that is the same at each reading, and unique to this conversation."""
        return derived_id(self.conversation_id, f"{what} {number}")


def _repeats(review: items.ExitedReview, item: items.Item) -> bool:
    """Return whether an item is the text of the review before it, which codex also stores as a message. The APIs create
    that message from the review.
    """
    explained = "" if review.output is None else review.output.overall_explanation
    return isinstance(item, items.AgentMessage) and bool(item.text) and item.text.startswith(explained)


def _works_for(turn_id: str | None, payload: Mapping[str, Json]) -> bool:
    """Return whether the turn that begins belongs to another thread that works for this turn."""
    attribution = payload.get("turn_attribution")
    parent = text_of(attribution, "parent_turn_id") if isinstance(attribution, dict) else None
    return parent is not None and parent == turn_id


def _is_of_another(conversation_id: str, turn_id: str | None, payload: Mapping[str, Json]) -> bool:
    """Return whether a line is about a turn of another thread that worked for this one, such as a review. In a fork,
    lines of the original thread name that thread; they are about the open turn.
    """
    thread = text_of(payload, "thread_id")
    return thread not in (None, conversation_id) and text_of(payload, "turn_id") != turn_id
