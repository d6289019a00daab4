"""Answers of the Messages API: blocks as items, ends, token counts, errors."""

import json
from collections.abc import Sequence

import pytest

from app_server.engine.http.sse import SseDecoder, SseFrame
from app_server.engine.model.messages_reader import MessagesDecoder
from app_server.engine.model.prompt import (
    Completed,
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningSummaryTextDelta,
)
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError, StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
)
from tests.support.claude import events, shell, stream, text, thinking, tool_use
from tests.support.written_texts import summary_deltas, text_deltas

ORIGIN = ItemOrigin(answer="1-", provider="anthropic", model="claude-opus-5-5", wire="messages")


def read(frames: Sequence[Json], *, ends: bool = True) -> list[ModelEvent]:
    return read_bytes(stream(frames), ends=ends)


def read_bytes(*chunks: bytes, ends: bool = True, into: list[ModelEvent] | None = None) -> list[ModelEvent]:
    decoder, sse = MessagesDecoder(ORIGIN), SseDecoder()
    out: list[ModelEvent] = [] if into is None else into
    frames: list[SseFrame] = []
    for chunk in chunks:
        frames += sse.feed(chunk)
    for frame in [*frames, *sse.close()]:
        decoder.decode(frame, out)
    if ends:
        decoder.end(out)
    return out


def done(out: Sequence[ModelEvent]) -> list[ResponseItem]:
    return [event.item for event in out if isinstance(event, OutputItemDone)]


def test_blocks_become_items_in_their_order_with_what_the_provider_wants_back() -> None:
    out = read(
        events(
            thinking("First, look.", "sig-1"),
            {"type": "redacted_thinking", "data": "secret"},
            text("I look."),
            tool_use("shell", {"command": ["ls"]}, "toolu_1"),
            tool_use("update_plan", {}, "toolu_2"),
            stop="tool_use",
        )
    )
    thought, hidden, words, call, empty = done(out)
    assert isinstance(thought, ReasoningResponseItem)
    assert thought.summary[0].text == "First, look."
    assert thought.origin is not None
    assert thought.origin.kept == {"signature": "sig-1"}
    assert thought.origin.answer == "1-msg_1"
    assert isinstance(hidden, ReasoningResponseItem)
    assert hidden.origin is not None
    assert hidden.origin.kept == {"redacted": "secret"}
    assert isinstance(words, MessageItem)
    assert words.content == (OutputText(text="I look."),)
    assert isinstance(call, FunctionCall)
    assert json.loads(call.arguments) == {"command": ["ls"]}
    assert isinstance(empty, FunctionCall)
    assert (empty.arguments, empty.call_id) == ("{}", "toolu_2")
    assert [each for each in out if isinstance(each, OutputTextDelta)] == text_deltas("I ", "look.")
    thoughts = [each for each in out if isinstance(each, ReasoningSummaryTextDelta)]
    assert thoughts == summary_deltas("First, ", "look.")


def test_tokens_are_counted_with_what_was_cached() -> None:
    usage = {
        "input_tokens": 7,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "output_tokens": 1,
        "output_tokens_details": {"thinking_tokens": 3},
    }
    completed = read(events(text("hi"), usage=usage))[-1]
    assert isinstance(completed, Completed)
    assert completed.usage is not None
    counted = completed.usage
    assert (counted.input_tokens, counted.cached_input_tokens) == (127, 100)
    assert (counted.output_tokens, counted.reasoning_output_tokens, counted.total_tokens) == (5, 3, 132)


ANSWER = stream(
    events(
        thinking("Let me see: é😀", "sig"),
        text("I look.\n"),
        shell("ls 'é'", "toolu_1"),
        shell("pwd", "toolu_2"),
    )
)


def test_an_answer_that_is_cut_anywhere_is_read_alike() -> None:
    whole = read_bytes(ANSWER)
    assert [type(item).__name__ for item in done(whole)] == [
        *("ReasoningResponseItem", "MessageItem", "FunctionCall", "FunctionCall")
    ]
    for at in range(1, len(ANSWER)):
        assert read_bytes(ANSWER[:at], ANSWER[at:]) == whole


def test_a_stream_that_ends_anywhere_before_its_end_is_broken_and_runs_no_call_that_may_be_cut() -> None:
    frames = events(text("I look."), shell("ls", "toolu_1"), stop="tool_use")
    for count in range(len(frames)):
        with pytest.raises(StreamDisconnected):
            read(frames[:count])
        assert not [item for item in done(read(frames[:count], ends=False)) if isinstance(item, FunctionCall)]


def test_a_call_is_begun_as_soon_as_the_next_block_begins() -> None:
    frames = events(shell("ls", "toolu_1"), shell("pwd", "toolu_2"), stop="tool_use")
    second = [frame.get("content_block", {}).get("id") for frame in frames].index("toolu_2")
    assert not done(read(frames[:second], ends=False))
    assert len(done(read(frames[: second + 1], ends=False))) == 1


def test_blocks_that_interleave_are_shown_one_after_the_other() -> None:
    frames: list[Json] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "y"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
    ]
    shown = [event for event in read(frames) if isinstance(event, OutputItemAdded | OutputTextDelta)]
    begun = OutputItemAdded(MessageItem(role="assistant", content=()))
    assert shown == [begun, *text_deltas("a", "b"), begun, *text_deltas("y")]


def test_what_nobody_knows_is_passed_over() -> None:
    frames = events(
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "fallback", "model": "x"},
        text("hi"),
    )
    odd: list[Json] = [
        {"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": {}}},
        {
            "type": "content_block_delta",
            "index": 9,
            "delta": {"type": "input_json_delta", "partial_json": "{"},
        },
        {"type": "content_block_stop", "index": 77},
        {"type": "container_update"},
        {"type": "content_block_delta", "index": None, "delta": None},
        {"type": "content_block_start"},
    ]
    at = len(frames) - 3
    assert len(done(read([*frames[:at], *odd, *frames[at:]]))) == 1


def test_a_whole_answer_in_place_of_a_stream_is_read() -> None:
    message = {
        "type": "message",
        "id": "msg_9",
        "content": [thinking("Hm.", "s"), text("Hello"), shell("ls", "toolu_1")],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    decoder, out = MessagesDecoder(ORIGIN), list[ModelEvent]()
    decoder.decode(SseFrame("", json.dumps(message).encode()), out)
    assert decoder.completed
    thought, words, call = done(out)
    assert isinstance(thought, ReasoningResponseItem)
    assert thought.origin is not None
    assert thought.origin.kept == {"signature": "s"}
    assert isinstance(words, MessageItem)
    assert isinstance(call, FunctionCall)
    assert json.loads(call.arguments) == {"command": ["sh", "-c", "ls"]}
    assert isinstance(out[-1], Completed)
    assert out[-1].usage is not None


@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        ("max_tokens", ErrorClass.OUTPUT_LIMIT),
        ("refusal", ErrorClass.REFUSED),
        ("model_context_window_exceeded", ErrorClass.CONTEXT_WINDOW_EXCEEDED),
    ],
)
def test_an_answer_that_is_cut_off_keeps_its_text_and_runs_no_call(stop: str, kind: ErrorClass) -> None:
    out: list[ModelEvent] = []
    calls = () if stop == "max_tokens" else (shell("ls", "toolu_1"),)
    answer = stream(events(text("Half"), *calls, stop=stop))
    with pytest.raises(ModelError) as caught:
        read_bytes(answer, into=out)
    assert caught.value.error_class is kind
    assert isinstance(caught.value, ContextWindowExceeded) == (stop == "model_context_window_exceeded")
    assert [type(item) for item in done(out)] == [MessageItem]
    assert not caught.value.retryable


def test_a_limit_that_cuts_a_call_says_which_one() -> None:
    out = read(events(shell("ls", "toolu_1"), shell("pwd", "toolu_2"), stop="max_tokens"))
    assert [each.is_cut for each in out if isinstance(each, OutputItemDone)] == [False, True]
    assert isinstance(out[-1], Completed)
    assert out[-1].cut_by == "max_tokens"


def test_a_refusal_says_why() -> None:
    frames = events(text("No."), stop="refusal")
    details = {"type": "refusal", "category": "cyber", "explanation": "It asks for an attack."}
    frames[-2]["delta"]["stop_details"] = details
    with pytest.raises(ModelError, match="refusal: It asks for an attack"):
        read(frames)


def test_a_provider_that_pauses_is_to_be_asked_on() -> None:
    completed = read(events(text("So far"), stop="pause_turn"))[-1]
    assert isinstance(completed, Completed)
    assert completed.paused


@pytest.mark.parametrize(
    ("kind", "words", "expected", "retryable"),
    [
        ("overloaded_error", "Overloaded", ErrorClass.SERVER_OVERLOADED, True),
        ("rate_limit_error", "Too many", ErrorClass.RATE_LIMIT_EXCEEDED, True),
        ("api_error", "Internal server error", None, True),
        ("timeout_error", "Timed out", None, True),
        ("invalid_request_error", "messages: bad", ErrorClass.BAD_REQUEST, False),
        ("authentication_error", "invalid x-api-key", ErrorClass.UNAUTHORIZED, False),
        ("permission_error", "no", None, False),
        ("billing_error", "no", None, False),
        ("request_too_large", "Request exceeds", ErrorClass.CONTEXT_WINDOW_EXCEEDED, False),
        ("invalid_request_error", "prompt is too long: 9 > 8", ErrorClass.CONTEXT_WINDOW_EXCEEDED, False),
    ],
)
def test_errors_inside_a_stream_count_as_outside_of_it(
    kind: str, words: str, expected: ErrorClass | None, retryable: bool
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": words}}
    with pytest.raises(ModelError) as caught:
        read([*events(text("a"))[:4], error])
    assert caught.value.retryable is retryable
    if expected is not None:
        assert caught.value.error_class is expected
    if expected in (None, ErrorClass.BAD_REQUEST):
        assert words in str(caught.value)
