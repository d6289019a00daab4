"""The begin and end of the turns in a rollout, and the events of their items, for the decoder. Pure.

A turn begins with the line that names it, or, in files without such lines, with the first line about it. It ends with
its own line, or with whatever comes instead: the next turn, or the end of the file.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct

from app_server.engine.storage.history_calls import EndedCall, HistoryCalls
from app_server.engine.storage.older_items import member_of
from app_server.engine.storage.record import text_of
from app_server_protocol.encoding import Json
from app_server_protocol.engine import events, items
from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.events import TurnAbortReason

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


Events = list[events.SessionEvent | events.TurnRenamed]
"""Events that one line adds."""


class TurnEdges(Struct):
    """The open turn of a conversation, as the lines so far leave it."""

    conversation_id: str
    derives_ids: bool = True
    """Whether turns and items without an id get one, and turns without a stored beginning have events. Both take a
    third of the time in which an old file is decoded, and the conversation API shows none of it.
    """
    _turn: str | None = None
    """Id of the open turn; None if none is open."""
    explicit: bool = False
    """Whether the open turn has a stored start."""
    _itemised: bool = False
    """Whether the items of the open turn have lines of their own."""
    _turn_started: float | None = None
    _last_turn: str | None = None
    """Id of the last turn that a line named."""
    _review: items.ExitedReview | None = None
    """The previous item, if it was the end of a review; else None."""
    _calls: HistoryCalls = msgspec.field(default_factory=HistoryCalls)

    def _turn_start(self, out: Events, number: int, payload: Mapping[str, Json]) -> None:
        turn_id = text_of(payload, "turn_id") or self._derived("turn", number)
        if turn_id == self._turn or _works_for(self._last_turn, payload):
            return
        itemised = "kind" in payload
        if payload.get("late") and self._turn is not None:
            out.append(events.TurnRenamed(self._turn, turn_id))
            self._turn, self.explicit, self._itemised = turn_id, True, itemised
            return
        self._close(out)
        self._itemised = itemised
        self._begin(
            out,
            turn_id,
            member_of(events.TurnKind, payload.get("kind")) or events.TurnKind.REGULAR,
            number_of(payload, "started_at"),
            explicit=True,
        )

    def _begin(
        self, out: Events, turn_id: str, kind: events.TurnKind, started_at: float | None, *, explicit: bool
    ) -> None:
        self._calls.begin()
        self._turn, self.explicit, self._turn_started = turn_id, explicit, started_at
        self._review = None  # only a message of the same turn can repeat the text of its review
        self._last_turn = turn_id
        if explicit or self.derives_ids:
            started = events.TurnStarted(kind, None, started_at or 0.0)
            out.append(events.SessionEvent("", turn_id, started))

    def _begin_derived(
        self, out: Events, number: int, kind: events.TurnKind = events.TurnKind.REGULAR
    ) -> None:
        """Begin a turn whose beginning is not stored."""
        self._itemised = False
        self._begin(out, self._derived("turn", number), kind, None, explicit=False)

    def _turn_end(
        self,
        out: Events,
        payload: Mapping[str, Json],
        status: events.TurnStatus,
        *,
        error: TurnError | None = None,
    ) -> None:
        turn_id = text_of(payload, "turn_id") or self._turn
        if turn_id is None and status is not events.TurnStatus.INTERRUPTED:
            return
        self._show_calls(out, self._calls.end())
        duration = number_of(payload, "duration_ms")
        ended = events.TurnEnded(
            status=status,
            started_at=number_of(payload, "started_at"),
            ended_at=number_of(payload, "completed_at") or 0.0,
            seconds=None if duration is None else duration / 1000,
            error=error,
            reason=member_of(TurnAbortReason, payload.get("reason")),
        )
        out.append(events.SessionEvent("", turn_id, ended))
        self._turn = None

    def _close(self, out: Events) -> None:
        """End a turn without a stored end."""
        if self._turn is None:
            return
        if calls := self._calls.end():
            self._show_calls(out, calls)
        if self.explicit or self.derives_ids:
            status = events.TurnStatus.INTERRUPTED if self.explicit else events.TurnStatus.COMPLETED
            ended = events.TurnEnded(status=status, started_at=self._turn_started, ended_at=0.0, seconds=None)
            out.append(events.SessionEvent("", self._turn, ended))
        self._turn = None

    def _show_calls(self, out: Events, calls: Iterable[EndedCall]) -> None:
        for call in calls:
            self._item(out, call.item, (0, 0), self._turn, cut=call.cut)

    def _item(
        self,
        out: Events,
        item: items.Item,
        times: tuple[int, int],
        turn_id: str | None,
        *,
        cut: bool = False,
        announced: bool = True,
    ) -> None:
        started_at, ended_at = times
        ended = events.ItemCompleted(item, started_at, ended_at, cut, announced)
        out.append(events.SessionEvent("", turn_id, ended))

    def _event(self, event: events.EngineEvent) -> events.SessionEvent:
        return events.SessionEvent("", self._turn, event)

    def _derived(self, what: str, number: int) -> str:
        """Return an id that is the same at each reading, and unique to this conversation."""
        if not self.derives_ids:
            return ""
        return derived_id(self.conversation_id, f"{what} {number}")


def _works_for(turn_id: str | None, payload: Mapping[str, Json]) -> bool:
    """Return whether the turn that begins belongs to another thread that works for this turn."""
    attribution = payload.get("turn_attribution")
    parent = text_of(attribution, "parent_turn_id") if isinstance(attribution, dict) else None
    return parent is not None and parent == turn_id
