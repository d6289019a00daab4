"""Joins text deltas that lie side by side, for subscribers that have fallen behind. Pure.

Only neighbours of one item are joined and nothing else is touched, so the order of events holds and the joined text
is the same to the letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.engine.events import (
    AgentMessageDelta,
    Delta,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    SessionEvent,
)
from protocol.structs import replace

LONGEST = 16 * 1024
"""Characters of a joined delta: what waits for a subscriber is bounded by the number of events times this."""


def coalesce(events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """Join neighbouring deltas."""
    out: list[SessionEvent] = []
    texts: list[str] = []
    length = 0
    for event in events:
        delta = event.event
        if (
            texts
            and isinstance(delta, Delta)
            and length + len(delta.delta) <= LONGEST
            and _same_stream(out[-1], event)
        ):
            texts.append(delta.delta)
            length += len(delta.delta)
            continue
        _close(out, texts)
        out.append(event)
        texts = [delta.delta] if isinstance(delta, Delta) else []
        length = len(delta.delta) if isinstance(delta, Delta) else 0
    _close(out, texts)
    return out


def _close(out: list[SessionEvent], texts: list[str]) -> None:
    if len(texts) > 1:
        last = out[-1].event
        assert isinstance(last, Delta)
        out[-1] = out[-1]._replace(event=replace(last, delta="".join(texts)))


def _same_stream(one: SessionEvent, other: SessionEvent) -> bool:
    return one[:2] == other[:2] and _stream(one.event) == _stream(other.event)


def _stream(event: object) -> tuple[object, ...] | None:
    match event:
        case AgentMessageDelta():
            return (AgentMessageDelta, event.item_id)
        case ReasoningSummaryDelta() | ReasoningTextDelta():
            return (type(event), event.item_id, event.index)
        case _:
            return None
