"""What comes from outside as bytes: whatever it is, it is read the same in any pieces, or refused by name."""

import json
import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st

from app_server.core.errors import ModelError
from app_server.core.http.sse import EventTooLong, SseDecoder, SseFrame
from app_server.core.model.model_events import Completed, ModelEvent
from app_server.core.model.responses_api import ResponsesDecoder
from app_server.transport.framing import LineDecoder, Oversized
from protocol.base import Json
from protocol.jsonrpc import INVALID_REQUEST, PARSE_ERROR, ParseError, Request, dump_error, parse_message
from tests.fuzz.mutation import chunks, mutated, thorough

REQUESTS = tuple(
    json.dumps(message).encode()
    for message in (
        {"id": 1, "method": "newConversation", "params": {"cwd": "/", "config": {"a.b": [1, 2.5, None]}}},
        {
            "jsonrpc": "2.0",
            "id": "x",
            "method": "interruptConversation",
            "params": {"conversationId": "grün 🙂"},
        },
        {"id": 7, "result": {"decision": "approved"}},
        {"id": 7, "error": {"code": -1, "message": "no", "data": {}}},
        {"method": "initialized"},
    )
)
COMPLETED = {"id": "r", "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hé"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
EVENTS: tuple[Json, ...] = (
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "response.output_item.added", "item": MESSAGE},
    {"type": "response.output_text.delta", "delta": "h"},
    {"type": "response.output_item.done", "item": MESSAGE},
    {"type": "response.output_item.done", "item": CALL},
    {
        "type": "response.failed",
        "response": {"error": {"code": "rate_limit_exceeded", "message": "try again in 1s"}},
    },
    {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    {"type": "response.completed", "response": COMPLETED},
)


def lines_of(event: Json) -> tuple[str, ...]:
    return f"event: {event['type']}", f"data: {json.dumps(event)}", ""


STREAMS = tuple(
    "".join(line + end for event in events for line in lines_of(event)).encode()
    for end in ("\n", "\r\n", "\r")
    for events in (EVENTS, EVENTS[2:5], EVENTS[5:])
)


@thorough
@given(st.data(), st.lists(mutated(REQUESTS), max_size=6), st.integers(1, 300))
def test_lines_are_the_same_in_any_pieces(data: st.DataObject, lines: list[bytes], limit: int) -> None:
    whole = b"\n".join(lines)
    pieces = data.draw(chunks(whole))
    decoder = LineDecoder(limit)
    got = [line for piece in pieces for line in decoder.feed(piece)]
    *ended, rest = whole.split(b"\n")
    assert got == [line if len(line) <= limit else Oversized(len(line)) for line in ended]
    assert decoder.close() == (rest if len(rest) <= limit else b"")


def test_a_line_in_single_bytes_takes_no_more_memory_than_its_bytes() -> None:
    decoder = LineDecoder(1 << 20)
    tracemalloc.start()
    for _ in range(100_000):
        assert decoder.feed(b"x") == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000
    assert decoder.feed(b"\n") == [b"x" * 100_000]


@thorough
@given(mutated(REQUESTS) | st.binary(max_size=100))
@example(b'{"id":1,"method":"a","id":2}')
@example(b'{"id":1e400,"method":"a"}')
@example(b'{"id":"\\ud800","method":"a"}')
@example(b"[" * 100_000)
def test_a_line_is_a_message_or_refused(line: bytes) -> None:
    refused: ParseError | None = None
    try:
        message = parse_message(line)
    except ParseError as error:
        refused = error
    if refused is None:
        assert not isinstance(message, Request) or type(message.id) in (int, str)
        return
    assert refused.code in (PARSE_ERROR, INVALID_REQUEST)
    answer = dump_error(refused.id, refused.code, refused.message)
    assert len(answer) < 1000 + len(line) // 2
    assert b"\n" not in answer
    json.loads(answer)


def frames(pieces: list[bytes]) -> list[SseFrame] | None:
    decoder = SseDecoder()
    try:
        return [frame for piece in pieces for frame in decoder.feed(piece)] + decoder.close()
    except EventTooLong:
        return None


@thorough
@given(st.data(), mutated(STREAMS))
def test_frames_are_the_same_in_any_pieces(data: st.DataObject, stream: bytes) -> None:
    assert frames(data.draw(chunks(stream))) == frames([stream])


@thorough
@given(mutated(STREAMS))
def test_a_stream_is_events_or_an_error_of_the_models(stream: bytes) -> None:
    decoder = ResponsesDecoder()
    events: list[ModelEvent] = []
    failed: ModelError | None = None
    try:
        for frame in frames([stream]) or ():
            decoder.decode(frame, events)
        decoder.end(events)
    except ModelError as error:
        failed = error
    assert failed is None or str(failed)
    assert decoder.completed == any(isinstance(event, Completed) for event in events)
