"""Joins text deltas that lie side by side, for a listener that has fallen behind. Pure.

Only neighbours of one stream are joined and nothing else is touched, so the order laws hold and the joined text
is the same to the letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.events.deltas import (
    AgentMessageContentDeltaEvent,
    AgentMessageDeltaEvent,
    AgentReasoningDeltaEvent,
    AgentReasoningRawContentDeltaEvent,
    ReasoningContentDeltaEvent,
    ReasoningRawContentDeltaEvent,
)
from protocol.events.msg import EventMsg

LONGEST = 16 * 1024
"""Characters of a joined delta: what waits for a listener is bounded by the number of events times this."""


class SessionEvent(NamedTuple):
    """An event and the id of the operation that it belongs to."""

    id: str
    msg: EventMsg


ItemDelta = AgentMessageContentDeltaEvent | ReasoningContentDeltaEvent | ReasoningRawContentDeltaEvent
PlainDelta = AgentMessageDeltaEvent | AgentReasoningDeltaEvent | AgentReasoningRawContentDeltaEvent
"""A delta of an item is followed by the same text in the older form; such pairs are joined as pairs."""


def coalesce(events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """The same story with fewer events."""
    out: list[SessionEvent] = []
    n = 0
    while n < len(events):
        texts = _run_of_pairs(events, n)
        if len(texts) > 1:
            joined = "".join(texts)
            out += [_with_delta(events[n], joined), _with_delta(events[n + 1], joined)]
            n += 2 * len(texts)
        else:
            out.append(events[n])
            n += 1
    return out


def _run_of_pairs(events: Sequence[SessionEvent], start: int) -> list[str]:
    """The texts of the pairs of one stream that begin at `start` and follow one another."""
    texts: list[str] = []
    stream: tuple[type[ItemDelta], str, str] | None = None
    length = 0
    for n in range(start, len(events) - 1, 2):
        id, item = events[n]
        plain_id, plain = events[n + 1]
        if not isinstance(item, ItemDelta) or not isinstance(plain, PlainDelta):
            break
        if (
            plain_id != id
            or plain.delta != item.delta
            or stream not in (None, (type(item), id, item.item_id))
        ):
            break
        length += len(item.delta)
        if texts and length > LONGEST:
            break
        stream = (type(item), id, item.item_id)
        texts.append(item.delta)
    return texts


def _with_delta(event: SessionEvent, text: str) -> SessionEvent:
    return SessionEvent(event.id, event.msg.model_copy(update={"delta": text}))
