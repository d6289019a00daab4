import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.http.sse import SseDecoder
from app_server.engine.model import prompt
from app_server.engine.model.chat_reader import LENGTH, ChatDecoder
from app_server.engine.model.text_calls import Offered, TextSieve
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError, StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ReasoningText,
)
from tests.engine.model.scripted import JSON, LETTERS, sse
from tests.support.written_texts import content_deltas, text_deltas

DONE = b"data: [DONE]\n\n"


def piece(finish: str | None = None, **delta: Json) -> bytes:
    return sse({"id": "chat-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call_piece(index: int | None, arguments: str = "", **fields: Json) -> Json:
    name = fields.pop("name", None)
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {**({} if index is None else {"index": index}), "function": function, **fields}


def read(*frames: bytes, live: bool = False, end: bool = True) -> list[prompt.ModelEvent]:
    decoder, events = ChatDecoder(live=live), list[prompt.ModelEvent]()
    for frame in SseDecoder().feed(b"".join(frames)):
        decoder.decode(frame, events)
    if end:
        decoder.end(events)
    return events


def message(text: str) -> prompt.OutputItemDone:
    return prompt.OutputItemDone(MessageItem(role="assistant", content=(OutputText(text=text),)))


def thought(text: str) -> prompt.OutputItemDone:
    return prompt.OutputItemDone(ReasoningResponseItem(content=(ReasoningText(text=text),)))


BEGUN = prompt.OutputItemAdded(MessageItem(role="assistant", content=()))
THINKING = prompt.OutputItemAdded(ReasoningResponseItem())


def test_text_comes_as_one_item() -> None:
    events = read(piece(role="assistant", content="Hel"), piece(content="lo"), piece("stop"), DONE)
    assert events == [BEGUN, message("Hello"), prompt.Completed(None)]


def test_a_refusal_to_fill_a_schema_is_text() -> None:
    frames = [
        piece(content=None, refusal="Sor"),
        piece(content=None, refusal="ry."),
        piece("stop", refusal=None),
    ]
    assert read(*frames, DONE) == [BEGUN, message("Sorry."), prompt.Completed(None)]


def test_live_text_comes_in_deltas_with_token_counts() -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    frames = [piece(content="Hel"), piece(content="lo"), piece("stop"), sse({"choices": [], "usage": usage})]
    counted = TokenUsage(
        input_tokens=7, cached_input_tokens=3, output_tokens=2, reasoning_output_tokens=1, total_tokens=9
    )
    assert read(*frames, DONE, live=True) == [
        BEGUN,
        *text_deltas("Hel", "lo"),
        message("Hello"),
        prompt.Completed(counted),
    ]


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize(
    "wrap", [lambda text: text, lambda text: {"text": text}, lambda text: {"content": text}]
)
def test_reasoning_ends_where_the_text_begins(key: str, wrap: object) -> None:
    assert callable(wrap)
    frames = [piece(**{key: wrap("th")}), piece(**{key: wrap("ink")}), piece(content="said"), piece("stop")]
    assert read(*frames, DONE, live=True) == [
        THINKING,
        *content_deltas("th", "ink"),
        thought("think"),
        BEGUN,
        *text_deltas("said"),
        message("said"),
        prompt.Completed(None),
    ]


def test_reasoning_after_the_text_follows_it() -> None:
    frames = [piece(content="a", reasoning="1"), piece(reasoning="2"), piece(content="b"), DONE]
    assert read(*frames) == [
        THINKING,
        thought("1"),
        BEGUN,
        message("ab"),
        thought("2"),
        prompt.Completed(None),
    ]


def test_interleaved_calls_are_put_together_by_index() -> None:
    events = read(
        piece(content="Let me", tool_calls=[call_piece(0, '{"a"', id="c1", name="one")]),
        piece(tool_calls=[call_piece(1, "{", id="c2", name="two"), call_piece(0, ":1}")]),
        piece(tool_calls=[call_piece(1, "}")]),
        piece("tool_calls"),
        DONE,
    )
    assert events == [
        BEGUN,
        message("Let me"),
        prompt.OutputItemDone(FunctionCall(name="one", arguments='{"a":1}', call_id="c1")),
        prompt.OutputItemDone(FunctionCall(name="two", arguments="{}", call_id="c2")),
        prompt.Completed(None),
    ]


def test_calls_come_in_the_order_of_their_index() -> None:
    frames = [piece(tool_calls=[call_piece(n, "{}", id=f"c{n}", name="x")]) for n in (2, 0, 1)]
    items = [event.item for event in read(*frames, DONE) if isinstance(event, prompt.OutputItemDone)]
    assert [item.call_id for item in items if isinstance(item, FunctionCall)] == ["c0", "c1", "c2"]


def test_calls_without_index_or_id_are_distinguished() -> None:
    events = read(
        piece(tool_calls=[call_piece(None, "{}", id="c1", name="one")]),
        piece(tool_calls=[call_piece(None, "{", id="c2", name="two")]),
        piece(tool_calls=[call_piece(None, "}")]),
        piece("tool_calls"),
        DONE,
    )
    assert [event.item for event in events if isinstance(event, prompt.OutputItemDone)] == [
        FunctionCall(name="one", arguments="{}", call_id="c1"),
        FunctionCall(name="two", arguments="{}", call_id="c2"),
    ]
    events = read(
        piece(tool_calls=[call_piece(0, "{}", name="a"), call_piece(1, "{}", name="b")]), piece("stop"), DONE
    )
    ids = [
        item.call_id
        for e in events
        if isinstance(e, prompt.OutputItemDone) and isinstance(item := e.item, FunctionCall)
    ]
    assert all(ids)
    assert len(set(ids)) == 2


BOTH = '{"a":1}', '{"b":2}'


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            [(0, "A", "one", '{"a":'), (0, "", "", "1}"), (0, "B", "two", '{"b"'), (1, "", "", ":2}")],
            id="the second call begins at the index of the first",
        ),
        pytest.param(
            [(0, "A", "one", BOTH[0]), (0, "B", "two", ""), (1, "", "", '{"b"'), (1, "", "", ":2}")],
            id="its arguments come at an index of their own",
        ),
        pytest.param(
            [(0, "A", "one", BOTH[0]), (1, "A", "two", '{"b"'), (1, "A", "", ":2}")],
            id="one id for all calls",
        ),
        pytest.param(
            [(None, "A", "one", BOTH[0]), (None, "A", "two", BOTH[1])],
            id="one id for all calls, without indices",
        ),
        pytest.param(
            [
                *((0, "A", "one", said) for said in ('{"a":', "1}", BOTH[0])),
                *((1, "B", "two", said) for said in (BOTH[1], BOTH[1])),
            ],
            id="the last piece repeats all arguments",
        ),
    ],
)
def test_indices_and_ids_that_servers_confuse(pieces: list[tuple[int | None, str, str, str]]) -> None:
    frames = [piece(tool_calls=[call_piece(n, said, id=id, name=name)]) for n, id, name, said in pieces]
    events = read(*frames, piece("tool_calls"), DONE)
    calls = [event.item for event in events if isinstance(event, prompt.OutputItemDone)]
    assert all(isinstance(call, FunctionCall) for call in calls)
    assert [(c.name, c.arguments) for c in calls if isinstance(c, FunctionCall)] == list(
        zip(("one", "two"), BOTH, strict=True)
    )
    assert len({call.call_id for call in calls if isinstance(call, FunctionCall)}) == 2


def test_a_name_and_an_id_in_each_piece_cost_no_parse_of_the_pieces_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = list[str]()
    loads = json.loads

    def counted(text: str) -> Json:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    said = ['{"a":"', *("x" for _ in range(500)), '"}']
    events = read(
        *(piece(tool_calls=[call_piece(0, each, id="A", name="one")]) for each in said),
        piece("tool_calls"),
        DONE,
    )
    items = [event.item for event in events if isinstance(event, prompt.OutputItemDone)]
    assert [item.arguments for item in items if isinstance(item, FunctionCall)] == ["".join(said)]
    assert len([text for text in parsed if text.startswith('{"a"')]) < 3


def test_two_calls_of_one_tool_with_one_id() -> None:
    pieces = [call_piece(None, arguments, id="A", name="one") for arguments in ('{"a":1}', '{"a":2}')]
    events = read(*(piece(tool_calls=[each]) for each in pieces), piece("tool_calls"), DONE)
    items = [event.item for event in events if isinstance(event, prompt.OutputItemDone)]
    assert [item.arguments for item in items if isinstance(item, FunctionCall)] == ['{"a":1}', '{"a":2}']


def test_a_whole_message_in_place_of_deltas() -> None:
    whole = sse({"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]})
    assert read(whole) == [BEGUN, message("all at once"), prompt.Completed(None)]


def test_a_reason_to_finish_makes_the_closing_mark_unnecessary() -> None:
    assert read(piece(content="x"), piece("stop"))[-1] == prompt.Completed(None)


def test_a_cut_stream_is_not_complete() -> None:
    with pytest.raises(StreamDisconnected, match="stream closed before"):
        read(piece(content="x"))


def test_nothing_counts_after_the_closing_mark() -> None:
    assert read(piece(content="x"), DONE, piece(content="late"), DONE) == [
        BEGUN,
        message("x"),
        prompt.Completed(None),
    ]


@pytest.mark.parametrize("reason", ["length", "max_tokens", "content_filter"])
def test_an_answer_that_was_cut_short_gives_its_words_and_fails(reason: str) -> None:
    decoder, events = ChatDecoder(live=False), list[prompt.ModelEvent]()
    calls: dict[str, Json] = (
        {} if reason in LENGTH else {"tool_calls": [call_piece(0, '{"a"', id="c", name="shell")]}
    )
    cut = piece(content="so far", **calls)
    frames = SseDecoder().feed(cut + piece(reason) + DONE)
    for frame in frames[:-1]:
        decoder.decode(frame, events)
    with pytest.raises(ModelError, match=reason) as caught:
        decoder.decode(frames[-1], events)
    assert not caught.value.retryable
    assert events[1:] == [message("so far")]


@pytest.mark.parametrize("arguments", ['{"a"', '{"a": 1}'])
def test_a_limit_that_cuts_a_call_says_which_one(arguments: str) -> None:
    """The call before it is complete. The last one may be valid JSON without being complete."""
    whole, last = (
        call_piece(0, '{"b": 2}', id="b", name="shell"),
        call_piece(1, arguments, id="a", name="shell"),
    )
    events = read(piece(tool_calls=[whole, last]), piece("length"), DONE)
    done = [each for each in events if isinstance(each, prompt.OutputItemDone)]
    assert [each.is_cut for each in done] == [False, True]
    assert events[-1] == prompt.Completed(None, cut_by="length")


def test_an_error_chunk_fails_the_answer() -> None:
    with pytest.raises(StreamDisconnected, match="boo") as caught:
        read(sse({"error": {"message": "boo", "code": 500}}))
    assert caught.value.retryable
    with pytest.raises(ContextWindowExceeded):
        read(sse({"error": {"message": "long", "code": "context_length_exceeded"}}))
    with pytest.raises(StreamDisconnected, match="plain words"):
        read(sse({"error": "plain words"}))


DELTA = st.dictionaries(st.sampled_from(["content", "reasoning", "reasoning_content", "tool_calls"]), JSON)
ODD_CALLS = st.lists(
    st.dictionaries(st.sampled_from(["index", "id", "function", "type"]), JSON), max_size=3
).map(lambda calls: {"tool_calls": calls})
CHUNK = st.one_of(
    st.dictionaries(st.sampled_from(["choices", "usage", "id", "error"]), JSON),
    (DELTA | ODD_CALLS).map(lambda delta: {"choices": [{"delta": delta}]}),
)


@settings(deadline=None)
@given(st.lists(CHUNK, max_size=4), st.booleans())
def test_no_chunk_raises_anything_but_model_errors(chunks: list[Json], live: bool) -> None:
    with suppress(ModelError):
        events = read(*map(sse, chunks), DONE, live=live)
        assert [type(event) for event in events].count(prompt.Completed) == 1
        assert isinstance(events[-1], prompt.Completed)


@settings(deadline=None)
@given(st.data(), st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_any_interleaving_of_pieces_gives_the_same_calls(data: st.DataObject, texts: list[str]) -> None:
    """Each call's arguments are cut into characters; the calls alternate in any order."""
    left = {index: list(text) for index, text in enumerate(texts)}
    frames = [piece(tool_calls=[call_piece(n, id=f"c{n}", name=f"t{n}") for n in left])]
    while any(left.values()):
        index = data.draw(st.sampled_from([n for n, rest in left.items() if rest]))
        frames.append(piece(tool_calls=[call_piece(index, left[index].pop(0))]))
    events = read(*frames, piece("tool_calls"), DONE)
    calls = [event.item for event in events if isinstance(event, prompt.OutputItemDone)]
    assert calls == [FunctionCall(name=f"t{n}", arguments=t, call_id=f"c{n}") for n, t in enumerate(texts)]


OFFERED = Offered({"shell": frozenset({"command"})})


def written(decoder: ChatDecoder, pieces: Iterable[str]) -> list[prompt.ModelEvent]:
    events: list[prompt.ModelEvent] = []
    for frame in SseDecoder().feed(b"".join(piece(content=text) for text in pieces)):
        decoder.decode(frame, events)
    return events


@given(st.lists(st.text("ab<think>/{[`\n ", min_size=1), max_size=20))
def test_an_answer_in_which_calls_are_looked_for_has_the_words_of_its_sieve(pieces: list[str]) -> None:
    pieces = [*pieces, "One.\nTwo.", "\n{"]
    alone = TextSieve(think_tags="closed", offered=OFFERED)
    shown = [each for piece in pieces for each in alone.take(piece)] + alone.end(structured=False)[0]

    decoder = ChatDecoder(live=True, sieve=TextSieve(think_tags="closed", offered=OFFERED))
    events = written(decoder, pieces)
    decoder.decode(SseDecoder().feed(piece("stop"))[0], events)
    decoder.end(events)
    deltas = [event for event in events if isinstance(event, prompt.OutputTextDelta)]
    assert deltas == text_deltas(*(text for is_thought, text in shown if not is_thought))


def calls_of(decoder: ChatDecoder, pieces: list[str]) -> int:
    """Return the number of function calls in which a decoder reads these pieces."""
    frames = SseDecoder().feed(b"".join(piece(content=text) for text in pieces))
    events, calls = list[prompt.ModelEvent](), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for frame in frames:
            decoder.decode(frame, events)
    finally:
        sys.setprofile(None)
    return calls


def test_the_text_of_a_long_answer_is_read_with_no_more_calls_where_calls_in_it_are_looked_for() -> None:
    plain = ChatDecoder(live=True)
    sieved = ChatDecoder(live=True, sieve=TextSieve(think_tags="closed", offered=OFFERED))
    for decoder in (plain, sieved):
        written(decoder, ["I write.\n", "words"])
    text = [f"token{n} " for n in range(100)]
    assert calls_of(sieved, text) == calls_of(plain, text)
