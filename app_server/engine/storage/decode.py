"""The decoder of rollouts: the lines of a file to the events of its conversation. `encode` is its counterpart. Pure.

Everything that shows a stored conversation is a fold over these events: turns with their items (`turn_fold`), the
events of the conversation API (`conversation_fold`), the offsets of turns (`turn_index`). Summaries need no turns, and
take messages from `message_in`. So all APIs show the same, whichever program wrote the file:

1. A line that was stored with identity contains ids and times. Older files have neither: a turn begins with a message
   of the user, and ids are derived from the conversation's id and the line number, so that every reading yields the
   same ids.
2. A tool call that stands in the model's history alone becomes an item (`history_calls`).
3. A turn without a stored end is ended by the next turn, or by the end of the file.

The history of the model is not decoded here: `rollout_reader` validates its entries as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.storage.history_calls import CALLS, NAMES, OF_CALLS, HistoryCalls, has_item, plan_in
from app_server.engine.storage.line_reader import parse_event_msg
from app_server.engine.storage.older_items import CALLS_ENDED, older_item, stored_error
from app_server.engine.storage.record import OLDER_EVENTS, StoredRecord, text_of
from app_server.engine.storage.stored_item_lines import (
    BY_CRASH,
    ITEM_COMPLETED,
    TURN_ITEM,
    is_damaged,
    item_of_line,
)
from app_server.engine.storage.turn_edges import Events, TurnEdges, times_of
from app_server_protocol.encoding import Json
from app_server_protocol.engine import events, items
from app_server_protocol.engine.notices import TokenUsageUpdated, UndoCompleted
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.events.notice_events import UndoCompletedEvent
from app_server_protocol.events.turn_events import TokenCountEvent
from app_server_protocol.values import replace

OF_TURNS: Final = frozenset(
    (
        *("task_started", "task_complete", "turn_aborted", TURN_ITEM, ITEM_COMPLETED, *OLDER_EVENTS),
        *("patch_apply_end", "mcp_tool_call_end", "context_compacted"),
    )
)
"""Events whose payload is parsed. Most of a file is the model's history, which has no information about turns."""


_OLDER: Final = frozenset(
    (
        *("user_message", "agent_message", "entered_review_mode", "exited_review_mode"),
        *(*CALLS_ENDED, "context_compacted"),
    )
)
"""Events that stand for one item each."""
_OPENING: Final = frozenset(("user_message", "entered_review_mode"))
"""Older events with which a turn begins, if its begin is not stored."""
_OF_CALLS: Final = frozenset((TURN_ITEM, ITEM_COMPLETED, *CALLS_ENDED))
"""Events about the items of calls, among others."""
NOTICES: Final = frozenset(("token_count", "undo_completed"))
"""Events that belong to no turn or item."""


@cache
def _count_decoder() -> msgspec.json.Decoder[TokenCountEvent]:
    return msgspec.json.Decoder(TokenCountEvent)


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


class DecoderState(Struct, frozen=True, array_like=True):
    """State of a decoder before the first line of a turn, with which the turn can be decoded alone."""

    turn: str | None = None
    explicit: bool = False
    itemised: bool = False
    after_compaction: bool = False
    last_turn: str | None = None
    cwd: str = "/"


class RolloutDecoder(TurnEdges):
    """Decodes the records of one conversation, in order. Another decoder can continue where a turn begins: see `state`
    and `at`.
    """

    notices: bool = False
    """Whether counts of tokens and undone changes are decoded, too."""
    _reasoning: _OpenReasoning | None = None
    _after_compaction: bool = False
    _announced: str | None = None
    """Id of the item that the last older event was about, if the line of the item follows it; else None."""
    damaged: int = 0
    """Number of lines about an item of a known kind that cannot be read."""

    def take(self, number: int, record: StoredRecord) -> Events:
        """Return the events of a record. `number` is its line number in the file, counted from 0."""
        kind, name = record.kind, record.name
        if kind != "event_msg" or (record.ordinal is not None and name in OLDER_EVENTS):
            ends = self._calls.answered or self._after_compaction or self._reasoning is not None
            if kind == "response_item" and name not in NAMES and not ends:
                return []  # most lines of a file are such entries of the history
            name = None
        out: Events = []
        if self._calls.answered and name not in _OF_CALLS:
            self._show_calls(out, self._calls.take_answered())
        if name is None:
            if kind != "response_item" or record.name in NAMES:
                self._of_no_event(out, number, record)
            if self._reasoning is None and not self._after_compaction:
                self._after_compaction = kind == "compacted"
                return out
        self._take_event(out, number, name, record)
        if self.notices and name in NOTICES and (notice := _notice_in(record)) is not None:
            out.append(self._event(notice))
        return out

    def _take_event(self, out: Events, number: int, name: str | None, record: StoredRecord) -> None:
        """Take an event, or another line that may end what was open before it."""
        payload = record.value() if name in OF_TURNS else {}
        if payload is None:
            return
        if self._reasoning is not None and name not in ("agent_reasoning", "agent_reasoning_raw_content"):
            self._end_reasoning(out)
        after_compaction, self._after_compaction = self._after_compaction, record.kind == "compacted"
        match name:
            case str() if name in _OLDER:
                if "item_id" not in payload or "turn_id" in payload:
                    self._older_item(out, number, payload, after_compaction=after_compaction)
                else:
                    self._announced = text_of(payload, "item_id")  # a whole item follows
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

    @classmethod
    def at(cls, conversation_id: str, state: DecoderState) -> RolloutDecoder:
        """Return a decoder that continues at the first line of a turn. What it returns about the turn before that is
        incomplete.
        """
        return cls(
            conversation_id,
            _turn=state.turn,
            explicit=state.explicit,
            _itemised=state.itemised,
            _after_compaction=state.after_compaction,
            _last_turn=state.last_turn,
            _calls=HistoryCalls(context=state.cwd),
        )

    def state(self) -> DecoderState:
        """Return the state before the next line, in which a turn may begin."""
        return DecoderState(
            self._turn,
            self.explicit,
            self._itemised,
            self._after_compaction,
            self._last_turn,
            self._calls.cwd,
        )

    @property
    def is_settled(self) -> bool:
        """Whether a decoder with this `state` decodes all that follows as this one does."""
        if self._reasoning is not None or self._announced is not None or not self._calls.is_idle:
            return False
        awaits_calls = self._calls.has_items_before_calls and not self._itemised
        return self._turn is None or not (awaits_calls or self._review is not None)

    def copy(self) -> RolloutDecoder:
        """Return a copy of the decoder, which continues independently."""
        reasoning = None if self._reasoning is None else self._reasoning.copy()
        return replace(self, _reasoning=reasoning, _calls=self._calls.copy())

    def finish(self, *, is_open: bool = False) -> Events:
        """Return the events at the end of the file. `is_open`: the conversation goes on, so calls without an output are
        still being run.
        """
        out: Events = []
        self._show_calls(out, self._calls.take_answered())
        self._end_reasoning(out)
        if is_open:
            self._calls.begin()
        self._close(out)
        return out

    # --- what stands beside events
    def _of_no_event(self, out: Events, number: int, record: StoredRecord) -> None:
        """Take a line that is no event: an entry of the history, or the description of a conversation or turn."""
        if record.kind == "response_item":
            self._history_call(out, number, record)
        elif record.kind in ("turn_context", "session_meta"):
            self._calls.enter(record)

    def _history_call(self, out: Events, number: int, record: StoredRecord) -> None:
        if record.name in CALLS and (plan := plan_in(record)) is not None:
            out.append(self._event(plan))
        if self._itemised or record.ordinal is not None:
            return
        if self._turn is None and record.name in CALLS and has_item(record):
            self._begin_derived(out, number)
        self._calls.take(record)

    # --- items
    def _whole_item(self, out: Events, number: int, name: str, payload: Mapping[str, Json]) -> None:
        announced, self._announced = self._announced, None
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
        by_crash = payload.get(BY_CRASH) is True or item.id == announced
        self._last_turn = turn_id or self._turn
        review, self._review = self._review, item if isinstance(item, items.ExitedReview) else None
        if name == ITEM_COMPLETED and review is not None and _repeats(review, item):
            return
        self._told(out, item)
        self._item(out, item, times_of(payload), self._last_turn, cut=cut, announced=not cut or by_crash)

    def _told(self, out: Events, item: items.Item) -> None:
        """Take the item of a line: calls before it are shown, but for that of the item."""
        if type(item) in OF_CALLS:
            self._calls.told(item)
        if self._calls.answered:
            self._show_calls(out, self._calls.take_answered())

    def _older_item(
        self, out: Events, number: int, payload: Mapping[str, Json], *, after_compaction: bool
    ) -> None:
        name = payload["type"]
        if self._turn is None or (name in _OPENING and not self.explicit):
            self._close(out)
            kind = events.TurnKind.REVIEW if name == "entered_review_mode" else events.TurnKind.REGULAR
            self._begin_derived(out, number, kind)
        id = text_of(payload, "item_id") or text_of(payload, "call_id") or self._derived("item", number)
        item = older_item(id, payload, after_compaction=after_compaction)
        if item is not None:
            self._told(out, item)
            self._item(out, item, times_of(payload), text_of(payload, "turn_id") or self._turn)

    def _reasoning_part(self, out: Events, number: int, name: str, payload: Mapping[str, Json]) -> None:
        if "item_id" in payload and "turn_id" not in payload:
            self._announced = text_of(payload, "item_id")
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

    def _end_reasoning(self, out: Events) -> None:
        if self._reasoning is not None:
            self._item(out, self._reasoning.item(), self._reasoning.times, self._turn)
            self._reasoning = None


def message_in(record: StoredRecord) -> items.UserMessage | items.AgentMessage | None:
    """Return the message in one line as the decoder reads it, for summaries, which need no turns; None if the line has
    none, or if another line has the whole message.
    """
    if record.kind != "event_msg":
        return None
    name, item = record.name, None
    if name in ("user_message", "agent_message"):
        payload = record.value()
        if payload is None or record.ordinal is not None:
            return None
        if "item_id" not in payload or "turn_id" in payload:
            item = older_item("", payload, after_compaction=False)
    elif name in (ITEM_COMPLETED, TURN_ITEM):
        item = item_of_line(name, record.value() or {})
    return item if isinstance(item, items.UserMessage | items.AgentMessage) else None


def _repeats(review: items.ExitedReview, item: items.Item) -> bool:
    """Return whether an item is the text of the review before it, which codex also stores as a message. The APIs create
    that message from the review.
    """
    explained = "" if review.output is None else review.output.overall_explanation
    return isinstance(item, items.AgentMessage) and bool(item.text) and item.text.startswith(explained)


def _is_of_another(conversation_id: str, turn_id: str | None, payload: Mapping[str, Json]) -> bool:
    """Return whether a line is about a turn of another thread that worked for this one, such as a review. In a fork,
    lines of the original thread name that thread; they are about the open turn.
    """
    thread = text_of(payload, "thread_id")
    return thread not in (None, conversation_id) and text_of(payload, "turn_id") != turn_id


def _notice_in(record: StoredRecord) -> TokenUsageUpdated | UndoCompleted | None:
    """Return the notice in a record; None if it is damaged."""
    found: EventMsg | None = None
    if record.name == "token_count":
        with suppress(ValueError):  # it is damaged, or has a lone surrogate
            found = _count_decoder().decode(record.payload)
    match found or parse_event_msg(record.value()):
        case TokenCountEvent(info=info, rate_limits=limits):
            return TokenUsageUpdated(info, limits)
        case UndoCompletedEvent(success=success, message=message):
            return UndoCompleted(success, message)
        case _:
            return None
