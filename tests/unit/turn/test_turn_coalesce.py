"""Joining deltas for a slow subscriber changes how often it is notified, never what it is sent."""

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.turn.coalesce import LONGEST, coalesce
from protocol.engine.events import (
    AgentMessageDelta,
    Delta,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    SessionEvent,
)
from protocol.events.notices import BackgroundEventEvent

turns, items, texts = st.sampled_from("12"), st.sampled_from("ab"), st.text(max_size=4)
deltas = st.one_of(
    st.builds(AgentMessageDelta, items, texts),
    st.builds(ReasoningSummaryDelta, items, st.integers(0, 1), texts),
    st.builds(ReasoningTextDelta, items, st.integers(0, 1), texts),
    st.builds(BackgroundEventEvent, message=texts),
)
streams = st.lists(
    st.builds(lambda turn, event: SessionEvent(turn, f"turn-{turn}", event), turns, deltas), max_size=25
)


def texts_by_neighbours(events: list[SessionEvent]) -> list[tuple[object, str]]:
    """Every run of deltas of one stream as one text, in order."""
    out: list[tuple[object, str]] = []
    for operation, turn, event in events:
        if not isinstance(event, Delta):
            assert isinstance(event, BackgroundEventEvent)
            out.append((None, event.message))
            continue
        key = (operation, turn, type(event), event.item_id, getattr(event, "index", None))
        if out and out[-1][0] == key:
            out[-1] = (key, out[-1][1] + event.delta)
        else:
            out.append((key, event.delta))
    return out


@given(streams)
def test_the_text_of_every_stream_is_the_same(events: list[SessionEvent]) -> None:
    joined = coalesce(events)
    assert texts_by_neighbours(joined) == texts_by_neighbours(events)
    assert len(joined) <= len(events)


@given(streams)
def test_coalescing_is_idempotent(events: list[SessionEvent]) -> None:
    joined = coalesce(events)
    assert coalesce(joined) == joined


def test_a_joined_delta_is_bounded() -> None:
    piece = "x" * (LONGEST // 2)
    events = [SessionEvent("1", "t", AgentMessageDelta("a", piece)) for _ in range(5)]
    lengths = [
        len(each.event.delta) for each in coalesce(events) if isinstance(each.event, AgentMessageDelta)
    ]
    assert sum(lengths) == 5 * len(piece)
    assert max(lengths) <= LONGEST
