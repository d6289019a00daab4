"""The outbox: events that are emitted, together or joined, stored and counted."""

import json
from pathlib import Path

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.context.history import ConversationHistory
from app_server.engine.storage.writer import LineForm, NullRolloutWriter, RolloutWriter
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.outbox import MOST_UNTAKEN, YIELD_ROUNDS, Line, Outbox, ReleasedEvents, Transcript
from app_server.engine.turn.token_counts import TokenCounts
from app_server_protocol.engine.events import (
    ItemCompleted,
    ItemTextGrown,
    SessionEvent,
)
from app_server_protocol.engine.item_text import WHOLE, ItemText, Part
from app_server_protocol.engine.items import AgentMessage
from app_server_protocol.engine.notices import HistoryItemRecorded, ProgressNotice
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.responses import InputText, MessageItem
from tests.support.written_texts import WrittenTexts


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
        while await outbox.released.wait():
            event = outbox.released.take().event
            if isinstance(event, ItemCompleted) and isinstance(event.item, AgentMessage):
                received.append(event.item.text)

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


def taken(outbox: Outbox) -> list[SessionEvent]:
    """Take all released events."""
    events = []
    while outbox.released:
        events.append(outbox.released.take())
    return events


PARTS: tuple[Part, ...] = (WHOLE, (True, 0), (True, 1))
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from((*PARTS, None)), st.text(max_size=4)),
        st.sampled_from(["store", "take"]),
    ),
    max_size=25,
)


class Reader:
    """Subscriber of an outbox, with the text that it has read. A run is what arrives of one text without a break."""

    def __init__(self) -> None:
        self.runs: list[tuple[Part | None, str]] = []
        self._read = dict.fromkeys(PARTS, 0)

    def arrive(self, events: list[SessionEvent]) -> None:
        for each in events:
            if isinstance(grown := each.event, ItemTextGrown):
                note(self.runs, grown.part, grown.text.text(self._read[grown.part], grown.end))
                self._read[grown.part] = grown.end
            else:
                assert isinstance(grown, ProgressNotice)
                note(self.runs, None, grown.message)


def note(runs: list[tuple[Part | None, str]], part: Part | None, text: str) -> None:
    if part is not None and runs and runs[-1][0] == part:
        runs[-1] = (part, runs[-1][1] + text)
    else:
        runs.append((part, text))


@given(steps)
def test_texts_arrive_whole_and_in_their_order_with_other_events(
    steps: list[tuple[Part | None, str] | str],
) -> None:
    outbox, reader, texts = Outbox(NullRolloutWriter()), Reader(), WrittenTexts()
    emitted: list[tuple[Part | None, str]] = []

    async def play() -> None:
        for step in (*steps, "take"):
            match step:
                case (None, str(text)):
                    outbox.emit("1", ProgressNotice(message=text), turn_id="t")
                    note(emitted, None, text)
                case ((_, _) as part, str(text)):
                    outbox.emit("1", texts.grow("m", text, part), turn_id="t")
                    note(emitted, part, text)
                case "store":
                    outbox.store()
                case _:
                    outbox.emit("1", ProgressNotice(message="taken"), turn_id="t")
                    note(emitted, None, "taken")
                    outbox.store()
                    reader.arrive(taken(outbox))

    anyio.run(play)
    assert reader.runs == emitted


async def test_a_text_is_one_event_however_often_it_grows_and_waits_only_for_what_has_to_be_stored() -> None:
    outbox, texts = Outbox(NullRolloutWriter()), WrittenTexts()
    outbox.emit("1", ProgressNotice(message="before"))
    outbox.emit("1", texts.grow("m", "a"))
    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        await anyio.wait_all_tasks_blocked()
        for piece in "bcde":
            outbox.emit("1", texts.grow("m", piece))
        outbox.close()
    # No write was needed since the first one, so no turn of the writer either.
    notice, grown = [each.event for each in taken(outbox)]
    assert notice == ProgressNotice(message="before")
    assert isinstance(grown, ItemTextGrown)
    assert grown.text.text(0, grown.end) == "abcde"


async def test_what_a_decoder_has_read_ahead_waits_for_nobody() -> None:
    """A producer pauses for the text that events speak of, not for what they will speak of."""
    released, text = ReleasedEvents(), ItemText(["a", "b" * (MOST_UNTAKEN + 1)])
    released.put(SessionEvent("1", "t", ItemTextGrown("m", WHOLE, text, 1)))
    with anyio.fail_after(5):
        await released.wait_for_capacity()
    released.put(SessionEvent("1", "t", ItemTextGrown("m", WHOLE, text, 2)))
    with anyio.move_on_after(0) as waited:
        await released.wait_for_capacity()
    assert waited.cancelled_caught


def test_items_of_the_history_are_emitted_only_while_somebody_wants_them() -> None:
    outbox = Outbox(NullRolloutWriter())
    transcript = Transcript(ConversationHistory(), outbox)
    emitter = TurnEmitter(outbox, "1", "turn", lambda: 0.0)
    said = [MessageItem(role="user", content=(InputText(text=text),)) for text in ("one", "two")]
    outbox.raw_items = False
    transcript.record(emitter, said[:1])
    outbox.raw_items = True
    transcript.record(emitter, said[1:])
    outbox.store()
    assert list(transcript.history.items) == said
    assert [each.event for each in taken(outbox)] == [HistoryItemRecorded(item=said[1])]


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
