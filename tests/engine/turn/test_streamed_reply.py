"""Answers from the bytes of their frames to the events of the turn: each text is kept once, by the decoder that reads
it, and events say how far it has come.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from app_server.engine.http.sse import SseFrame
from app_server.engine.model.chat_reader import ChatDecoder
from app_server.engine.model.messages_reader import MessagesDecoder
from app_server.engine.model.prompt import (
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningContentDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDelta,
)
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.model.stream import WireDecoder
from app_server.engine.model.text_calls import TextSieve
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.stream_assembler import PlanEdge, PlanFinder, ReplyAssembler
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import (
    EngineEvent,
    ItemCompleted,
    ItemTextGrown,
    TurnAbortReason,
    TurnStatus,
)
from app_server_protocol.engine.item_text import WHOLE, ItemText, Part
from app_server_protocol.engine.items import AgentMessage, Item, Plan, Reasoning
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import MessageItem, OutputText
from tests.support.event_sink import EventSink

ORIGIN = ItemOrigin(answer="1-", provider="anthropic", model="claude-opus-5-5", wire="messages")
VISIBLE = (
    OutputItemAdded
    | OutputItemDone
    | OutputTextDelta
    | ReasoningSummaryTextDelta
    | ReasoningSummaryPartAdded
    | ReasoningContentDelta
)


class Seen(Struct):
    """Events of the turn, and what each of its texts had said when an event about it was emitted."""

    events: list[EngineEvent] = msgspec.field(default_factory=list)
    shown: dict[tuple[str, Part], list[str]] = msgspec.field(default_factory=dict)
    texts: dict[tuple[str, Part], ItemText] = msgspec.field(default_factory=dict)
    ends: dict[tuple[str, Part], list[int]] = msgspec.field(default_factory=dict)

    def take(self, event: EngineEvent) -> None:
        self.events.append(event)
        if isinstance(event, ItemTextGrown):
            key = event.item_id, event.part
            self.shown.setdefault(key, []).append(event.text.text(0, event.end))
            self.ends.setdefault(key, []).append(event.end)
            assert self.texts.setdefault(key, event.text) is event.text, "a part of an item has one text"

    @property
    def completed(self) -> list[ItemCompleted]:
        return [event for event in self.events if isinstance(event, ItemCompleted)]


def whole(item: Item) -> dict[Part, str]:
    """Return the texts of a complete item."""
    match item:
        case Reasoning():
            parts = {(True, n): text for n, text in enumerate(item.summary)}
            return parts | {(False, n): text for n, text in enumerate(item.content)}
        case AgentMessage() | Plan():
            return {WHOLE: item.text}
        case _:
            return {}


def frame(value: Json) -> SseFrame:
    return SseFrame("", json.dumps(value).encode())


def chat(thought: Sequence[str], words: Sequence[str]) -> Iterator[Json]:
    for key, pieces in (("reasoning", thought), ("content", words)):
        for piece in pieces:
            yield {"id": "1", "choices": [{"delta": {key: piece}}]}
    yield {"id": "1", "choices": [{"delta": {}, "finish_reason": "stop"}]}


def responses(thought: Sequence[str], words: Sequence[str], *, announced: bool) -> Iterator[Json]:
    items: tuple[tuple[str, Json, Sequence[str]], ...] = (
        (
            "response.reasoning_summary_text.delta",
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "".join(thought)}]},
            thought,
        ),
        (
            "response.output_text.delta",
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "".join(words)}],
            },
            words,
        ),
    )
    for kind, item, pieces in items:
        empty: Json = {"summary": []} if item["type"] == "reasoning" else {"content": []}
        if announced:
            yield {"type": "response.output_item.added", "item": {**item, **empty}}
        yield from ({"type": kind, "delta": piece, "summary_index": 0} for piece in pieces)
        yield {"type": "response.output_item.done", "item": item}
    yield {"type": "response.completed", "response": {"id": "r"}}


def messages(thought: Sequence[str], words: Sequence[str], *, turns: bool = False) -> Iterator[Json]:
    """`turns`: the blocks take turns, so that the second one waits for the end of the first."""
    blocks = (("thinking", "thinking_delta", thought), ("text", "text_delta", words))
    pieces: list[list[Json]] = []
    for n, (field, kind, said) in enumerate(blocks):
        yield {"type": "content_block_start", "index": n, "content_block": {"type": field, field: ""}}
        deltas = ({"type": kind, field: piece} for piece in said)
        pieces.append([{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas])
    if turns:
        for first, second in zip(*pieces, strict=False):
            yield from (second, first)
        pieces = [rest[min(map(len, pieces)) :] for rest in pieces]
    for n, rest in enumerate(pieces):
        yield from rest
        yield {"type": "content_block_stop", "index": n}
    yield {"type": "message_stop"}


Wire = tuple[Callable[[], WireDecoder], Callable[[Sequence[str], Sequence[str]], Iterator[Json]]]

WIRES: dict[str, Wire] = {
    "chat": (lambda: ChatDecoder(live=True), chat),
    "chat with a sieve": (
        lambda: ChatDecoder(live=True, sieve=TextSieve(think_tags="closed", offered=None)),
        chat,
    ),
    "responses": (ResponsesDecoder, lambda *said: responses(*said, announced=True)),
    "responses without begins": (ResponsesDecoder, lambda *said: responses(*said, announced=False)),
    "messages": (lambda: MessagesDecoder(ORIGIN), messages),
    "messages in turns": (lambda: MessagesDecoder(ORIGIN), lambda *said: messages(*said, turns=True)),
}


def play(
    decoder: WireDecoder,
    frames: Iterator[Json],
    together: int,
    *,
    plans: bool = False,
    most: int | None = None,
) -> Seen:
    """Play an answer. `together`: number of frames that are decoded before the turn takes their events. `most`: number
    of events after which the turn is interrupted; None if it is not.
    """
    seen, ids, count = Seen(), iter(range(100)), 0
    emitter = TurnEmitter(EventSink(lambda each: seen.take(each.event)), "7", "turn", lambda: 0.0)
    assembler = ReplyAssembler(emitter, lambda: f"new-{next(ids)}", raw_reasoning=True, plans=plans)
    read = [frame(each) for each in frames]
    for start in range(0, len(read) + 1, together):
        batch = list[ModelEvent]()
        for each in read[start : start + together]:
            decoder.decode(each, batch)
        if start + together > len(read) and most is None:
            decoder.end(batch)
        for event in batch:
            if count == most:
                emitter.turn_ended(TurnStatus.INTERRUPTED, reason=TurnAbortReason.INTERRUPTED)
                return seen
            count += 1
            if isinstance(event, VISIBLE):
                assembler.take(event)
    emitter.turn_ended(TurnStatus.COMPLETED)
    return seen


wires = st.sampled_from(sorted(WIRES))
texts = st.lists(st.text("ab \n\u00e9<", min_size=1, max_size=3), min_size=1, max_size=8)
together = st.integers(1, 30)


@given(wires, texts, texts, together)
def test_any_split_of_an_answer_gives_the_same_items_and_offsets_that_grow(
    wire: str, thought: list[str], words: list[str], together: int
) -> None:
    make, frames = WIRES[wire]
    seen = play(make(), frames(thought, words), together)
    once = play(make(), frames(["".join(thought)], ["".join(words)]), 1)
    assert [event.item for event in seen.completed] == [event.item for event in once.completed]
    first, second = (event.item for event in seen.completed)
    assert (list(whole(first).values()), list(whole(second).values())) == (
        ["".join(thought)],
        ["".join(words)],
    )
    for item, pieces in ((first, thought), (second, words)):
        [part] = whole(item)
        text, shown = seen.texts[item.id, part], seen.shown[item.id, part]
        assert text.pieces == pieces or "sieve" in wire
        steps = list(accumulate(text.pieces))
        assert shown == steps[len(steps) - len(shown) :], (
            "an event says what has come, and nothing that came later"
        )
        assert wire == "messages in turns" or shown == steps
        assert all(before < after for before, after in pairwise(seen.ends[item.id, part]))


@given(wires, texts, texts, together, st.integers(0, 40))
def test_an_item_that_is_cut_keeps_what_the_events_before_have_said(
    wire: str, thought: list[str], words: list[str], together: int, most: int
) -> None:
    make, frames = WIRES[wire]
    seen = play(make(), frames(thought, words), together, most=most)
    for event in seen.completed:
        for part, text in whole(event.item).items():
            assert text == seen.shown.get((event.item.id, part), [""])[-1]


PIECES = st.lists(
    st.sampled_from(
        ["<proposed_plan>", "\n<proposed_plan>\n", "\n</proposed_plan>\n", "a", "\n", " ", "\u00e9"]
    ),
    min_size=1,
    max_size=12,
)


@given(wires, PIECES, together, st.none() | st.integers(0, 20))
def test_how_many_frames_come_at_once_changes_no_plan(
    wire: str, words: list[str], together: int, most: int | None
) -> None:
    make, frames = WIRES[wire]
    one_by_one, batches = (
        play(make(), frames(["Hm."], words), size, plans=True, most=most) for size in (1, together)
    )
    assert batches.shown == one_by_one.shown
    assert [event.item for event in batches.completed] == [event.item for event in one_by_one.completed]
    for event in batches.completed:
        for part, text in whole(event.item).items():
            assert text == batches.shown.get((event.item.id, part), [""])[-1]


@given(wires, PIECES, together)
def test_a_message_and_its_plans_have_all_of_its_text(wire: str, words: list[str], together: int) -> None:
    make, frames = WIRES[wire]
    words = ["So:", *words]
    seen = play(make(), frames(["Hm."], words), together, plans=True)
    finder = PlanFinder()
    found = [*finder.feed("".join(words)), *finder.finish()]
    expected = {Plan: "", AgentMessage: ""}
    kind: type[Plan | AgentMessage] = AgentMessage
    for piece in found:
        if isinstance(piece, PlanEdge):
            kind = Plan if piece is PlanEdge.BEGINS else AgentMessage
        else:
            expected[kind] += piece
    ended = sorted((event.item for event in seen.completed), key=lambda item: item.id)
    shown = {Plan: "", AgentMessage: ""}
    for item in ended:
        if isinstance(item, Plan | AgentMessage):
            shown[type(item)] += item.text
    assert shown == expected


def test_a_block_that_waited_is_shown_in_one_event_up_to_where_it_has_come() -> None:
    words = ["I ", "look", "."]
    frames = list(messages(["Hm", "..."], words, turns=True))
    seen = play(MessagesDecoder(ORIGIN), iter(frames), len(frames))
    [message] = [event.item for event in seen.completed if isinstance(event.item, AgentMessage)]
    assert seen.ends[message.id, WHOLE] == [2, 3]
    assert seen.shown[message.id, WHOLE] == ["I look", "I look."]


def test_text_that_a_sieve_takes_out_is_in_no_text() -> None:
    words = ["<thi", "nk>Hm", ".</think>", "I ", "look."]
    decoder = ChatDecoder(live=True, sieve=TextSieve(think_tags="closed", offered=None))
    seen = play(decoder, chat([], words), 3)
    thought, message = (event.item for event in seen.completed)
    assert list(whole(thought).values()) == ["Hm."]
    assert list(whole(message).values()) == ["I look."]
    assert [text.pieces for text in seen.texts.values()] == [["Hm", "."], ["I ", "look."]]


def test_an_answer_that_is_not_live_has_its_text_with_its_end() -> None:
    seen = play(ChatDecoder(live=False), chat(["Hm", "."], ["I ", "look."]), 2)
    assert seen.shown == {}
    assert [list(whole(event.item).values()) for event in seen.completed] == [["Hm."], ["I look."]]


def test_a_thought_goes_on_behind_a_call_where_a_provider_names_calls_alone() -> None:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "shell", "arguments": "{}"}
    said = [{"type": "response.reasoning_text.delta", "delta": each} for each in ("a", "b")]
    frames = [
        said[0],
        {"type": "response.output_item.added", "item": call},
        {"type": "response.output_item.done", "item": call},
        said[1],
    ]
    seen = play(ResponsesDecoder(), iter(frames), 2, most=4)
    [thought] = seen.shown.values()
    assert thought == ["a", "ab"]


@pytest.mark.parametrize("ends", [True, False], ids=["the thought ends late", "it is named at the end alone"])
def test_a_message_that_begins_before_the_thought_ends_is_an_item_of_its_own(ends: bool) -> None:
    thought = {
        "type": "reasoning",
        "id": "r",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }
    words = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}],
    }
    done = {"type": "response.output_item.done", "item": thought}
    frames = [
        *({"type": "response.reasoning_text.delta", "delta": each} for each in ("H", "m")),
        {"type": "response.output_text.delta", "delta": "I "},
        *((done,) if ends else ()),
        {"type": "response.output_text.delta", "delta": "look."},
        {"type": "response.completed", "response": {"id": "r", "output": [thought, words]}},
    ]
    seen = play(ResponsesDecoder(), iter(frames), 3)
    first, second = (event.item for event in seen.completed)
    assert isinstance(first, Reasoning)
    assert first.content == ("Hm",)
    assert isinstance(second, AgentMessage)
    assert second.text == "I look."
    assert seen.shown == {(first.id, (False, 0)): ["H", "Hm"], (second.id, WHOLE): ["I ", "I look."]}


def test_the_next_attempt_has_texts_of_its_own() -> None:
    seen, ids = Seen(), iter(range(10))
    emitter = TurnEmitter(EventSink(lambda each: seen.take(each.event)), "7", "turn", lambda: 0.0)
    for words in (["Half", " an"], ["A whole", " answer"]):
        decoder = ChatDecoder(live=True)
        assembler = ReplyAssembler(emitter, lambda: f"m{next(ids)}", raw_reasoning=True)
        batch = list[ModelEvent]()
        for each in list(chat([], words))[:-1]:
            decoder.decode(frame(each), batch)
        for event in batch:
            assert isinstance(event, VISIBLE)
            assembler.take(event)
        emitter.cut_text()
    assert [list(whole(event.item).values()) for event in seen.completed] == [["Half an"], ["A whole answer"]]
    first, second = seen.texts.values()
    assert first.pieces == ["Half", " an"]
    assert second.pieces == ["A whole", " answer"]


def test_a_reply_that_is_not_shown_has_its_text_all_the_same() -> None:
    """Such is the summary of a compaction."""
    decoder, assembler = ChatDecoder(live=True), ReplyAssembler(None, lambda: "m", raw_reasoning=False)
    batch = list[ModelEvent]()
    for each in chat([], ["A ", "summary"]):
        decoder.decode(frame(each), batch)
    decoder.end(batch)
    for event in batch:
        if isinstance(event, VISIBLE):
            assembler.take(event)
    [item] = [event.item for event in batch if isinstance(event, OutputItemDone)]
    assert isinstance(item, MessageItem)
    assert [part.text for part in item.content if isinstance(part, OutputText)] == ["A summary"]
