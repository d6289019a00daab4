"""The outbox: events that are emitted, together or joined, stored and counted."""

import json
from pathlib import Path

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage.writer import LineForm, RolloutWriter
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.outbox import LONGEST_DELTA, YIELD_ROUNDS, Line, Outbox, coalesce
from app_server.engine.turn.token_counts import TokenCounts
from app_server_protocol.engine.events import (
    AgentMessageDelta,
    Delta,
    ItemCompleted,
    ReasoningSummaryDelta,
    ReasoningTextDelta,
    SessionEvent,
)
from app_server_protocol.engine.items import AgentMessage
from app_server_protocol.engine.notices import ProgressNotice
from app_server_protocol.engine.token_usage import TokenUsage


class Disk(RolloutWriter):
    """Disk that records the lines of each write."""

    def __init__(self, path: Path) -> None:
        self.path, self.problem, self.form = path, None, LineForm()
        self.writes: list[list[str]] = []

    def append(self, items: object) -> None:
        assert isinstance(items, list)
        self.writes.append([_text(item) for item in items])


def _text(line: Line) -> str:
    return str(json.loads(line.to_json())["message"])


async def test_a_turn_goes_on_before_what_it_emitted_is_stored(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    outbox = Outbox(disk)
    emitter = TurnEmitter(outbox, "1", "turn", lambda: 0.0)
    received: list[str] = []

    async def subscribe() -> None:
        while events := await outbox.take():
            items = [each.event.item for each in events if isinstance(each.event, ItemCompleted)]
            received.extend(item.text for item in items if isinstance(item, AgentMessage))

    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        group.start_soon(subscribe)
        await anyio.wait_all_tasks_blocked()
        for number in range(YIELD_ROUNDS):
            emitter.show(AgentMessage(f"m{number}", (str(number),)))
            assert not disk.writes
            assert not received
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert received == list(map(str, range(YIELD_ROUNDS)))
        assert disk.writes == [received]
        emitter.show(AgentMessage("m", ("last",)))
        outbox.store()
        assert disk.writes[1:] == [["last"]]
        outbox.close()
    assert received[-1] == "last"


async def test_events_that_are_given_back_come_first_and_in_their_order(tmp_path: Path) -> None:
    outbox = Outbox(Disk(tmp_path))
    for number in range(4):
        outbox.emit("1", ProgressNotice(message=str(number)))
    outbox.store()
    taken = await outbox.take()
    outbox.emit("1", ProgressNotice(message="4"))
    outbox.store()
    outbox.give_back(taken[1:])
    events = [each.event for each in await outbox.take()]
    assert events == [ProgressNotice(message=number) for number in "1234"]


turns, items, texts = st.sampled_from("12"), st.sampled_from("ab"), st.text(max_size=4)
deltas = st.one_of(
    st.builds(AgentMessageDelta, items, texts),
    st.builds(ReasoningSummaryDelta, items, st.integers(0, 1), texts),
    st.builds(ReasoningTextDelta, items, st.integers(0, 1), texts),
    st.builds(ProgressNotice, message=texts),
)
streams = st.lists(
    st.builds(lambda turn, event: SessionEvent(turn, f"turn-{turn}", event), turns, deltas), max_size=25
)


def texts_by_neighbours(events: list[SessionEvent]) -> list[tuple[object, str]]:
    """Return every run of deltas of one stream as one text, in order."""
    out: list[tuple[object, str]] = []
    for each in events:
        operation, turn, event = each.operation_id, each.turn_id, each.event
        if not isinstance(event, Delta):
            assert isinstance(event, ProgressNotice)
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
    piece = "x" * (LONGEST_DELTA // 2)
    events = [SessionEvent("1", "t", AgentMessageDelta("a", piece)) for _ in range(5)]
    lengths = [
        len(each.event.delta) for each in coalesce(events) if isinstance(each.event, AgentMessageDelta)
    ]
    assert sum(lengths) == 5 * len(piece)
    assert max(lengths) <= LONGEST_DELTA


numbers = st.integers(0, 10_000)
usages = st.builds(
    TokenUsage,
    input_tokens=numbers,
    cached_input_tokens=numbers,
    output_tokens=numbers,
    reasoning_output_tokens=numbers,
    total_tokens=numbers,
)


@given(st.lists(usages, min_size=1))
def test_totals_add_up_and_the_last_is_the_last(parts: list[TokenUsage]) -> None:
    counts = TokenCounts()
    for usage in parts:
        counts.add(usage, 1000)
    assert counts.info is not None
    assert counts.info.last_token_usage == parts[-1]
    assert counts.info.total_token_usage.total_tokens == sum(usage.total_tokens for usage in parts)
    assert counts.in_context == parts[-1].total_tokens


def test_a_full_window_is_what_is_missing_of_it() -> None:
    counts = TokenCounts()
    counts.add(TokenUsage(total_tokens=300), 1000)
    counts.fill(1000)
    assert counts.info is not None
    assert counts.info.last_token_usage.total_tokens == 700
    assert counts.info.total_token_usage.total_tokens == 1000


def test_an_estimate_changes_what_is_in_context_and_not_what_was_paid() -> None:
    counts = TokenCounts()
    counts.add(TokenUsage(total_tokens=300), 1000)
    counts.estimate(50, None)
    assert counts.info is not None
    assert counts.in_context == 50
    assert counts.info.total_token_usage.total_tokens == 300
    assert counts.info.model_context_window == 1000
