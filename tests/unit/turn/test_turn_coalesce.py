"""Joining deltas for a slow listener changes how often it is told, never what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.turn.coalesce import SessionEvent, coalesce
from protocol.events.deltas import AgentMessageContentDeltaEvent, AgentMessageDeltaEvent
from protocol.events.notices import BackgroundEventEvent


def pair(turn: str, item: str, text: str) -> list[SessionEvent]:
    content = AgentMessageContentDeltaEvent(thread_id="c", turn_id=turn, item_id=item, delta=text)
    return [SessionEvent(turn, content), SessionEvent(turn, AgentMessageDeltaEvent(delta=text))]


def plain(turn: str, text: str) -> list[SessionEvent]:
    return [SessionEvent(turn, AgentMessageDeltaEvent(delta=text))]


def notice(turn: str, text: str) -> list[SessionEvent]:
    return [SessionEvent(turn, BackgroundEventEvent(message=text))]


turns, items, texts = st.sampled_from("12"), st.sampled_from("ab"), st.text(max_size=4)
stories = st.lists(
    st.one_of(
        st.builds(pair, turns, items, texts), st.builds(plain, turns, texts), st.builds(notice, turns, texts)
    ),
    max_size=25,
).map(lambda parts: [event for part in parts for event in part])


def story(events: list[SessionEvent]) -> list[tuple[str, ...]]:
    """Pieces of one stream that lie side by side, as one."""
    out: list[tuple[str, ...]] = []
    for id, msg in events:
        if isinstance(msg, AgentMessageContentDeltaEvent):
            key, text = (id, "content", msg.item_id), msg.delta
        elif isinstance(msg, AgentMessageDeltaEvent):
            key, text = (id, "older", ""), msg.delta
        else:
            out.append((id, msg.to_json().decode()))
            continue
        # The two forms take turns: a piece goes to the last one of its stream unless something else came between.
        n = next((n for n in (-1, -2) if len(out) >= -n and out[n][:3] == key), None)
        if n == -2 and len(out[-1]) != 4:
            n = None
        if n is None:
            out.append((*key, text))
        else:
            out[n] = (*key, out[n][3] + text)
    return out


@given(stories)
def test_the_story_is_the_same(events: list[SessionEvent]) -> None:
    joined = coalesce(events)
    assert story(joined) == story(events)
    assert len(joined) <= len(events)


@given(st.lists(texts, min_size=1, max_size=20))
def test_pairs_of_one_stream_become_one(pieces: list[str]) -> None:
    events = [event for piece in pieces for event in pair("1", "a", piece)]
    assert coalesce(events) == pair("1", "a", "".join(pieces))


def test_other_streams_and_other_events_are_borders() -> None:
    events = [*pair("1", "a", "x"), *pair("1", "b", "y"), *notice("1", "!"), *pair("1", "b", "z")]
    assert coalesce(events) == events
