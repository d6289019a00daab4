"""Lines of a server, whatever it writes."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.bounds import MAX_VALUES
from app_server.core.mcp.faults import MAX_BATCH, MAX_MESSAGE_BYTES
from app_server.core.mcp.interfaces import Incoming, McpError, McpReply, McpServerRequest
from app_server.core.mcp.rpc_messages import LineSplitter, encode, oversized, parse, parse_json


def read(data: bytes, size: int = 1 << 16) -> list[Incoming]:
    lines = LineSplitter()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    return [message for chunk in chunks for message in lines.feed(chunk) if message is not None]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b"[1,null]",
        b"null",
        b"\x00\xff",
        b"[" * 100_000,
        b'{"id":true,"result":1}',
        b'{"id":"1","result":1}',
        b'{"id":1.0,"result":1}',
        b'{"id":1}',
        b'{"method":"note","params":{}}',
        b'{"id":null,"method":"x"}',
    ],
)
def test_what_is_no_message_is_passed_over(line: bytes) -> None:
    assert read(line + b"\n") == []


def test_results_errors_and_requests_are_distinguished() -> None:
    assert read(b'{"id":1,"result":null}\n') == [McpReply(1, None)]
    assert read(b'{"id":1,"error":{"code":-5,"message":"no","data":[1]}}\n') == [
        McpError(1, "Mcp error: -5: no([1])", -5)
    ]
    assert read(b'{"id":1,"error":"no"}\n') == [McpError(1, "Mcp error: the server gave no reason")]
    assert read(b'{"id":"a","method":"ping"}\n') == [McpServerRequest("a", "ping")]


def test_a_batch_is_taken_apart() -> None:
    assert read(b'[{"id":1,"result":1},{"id":2,"result":2}]\n') == [McpReply(1, 1), McpReply(2, 2)]


@given(st.integers(1, 40))
def test_where_the_chunks_are_cut_does_not_matter(size: int) -> None:
    data = b'noise\n{"id":1,"result":"a"}\n\n{"id":2,"result":"\xc3\xa4"}\n'
    assert read(data, size) == [McpReply(1, "a"), McpReply(2, "ä")]


def test_text_that_is_no_unicode_is_replaced() -> None:
    assert parse_json(b'{"a":"\xff"}') == {"a": "�"}
    assert parse_json(b'{"a":"\\ud800"}') == {"a": "�"}


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    for message in parse(data):
        assert isinstance(message, McpReply | McpError | McpServerRequest)


def test_of_a_message_that_is_too_large_the_beginning_of_the_text_is_left() -> None:
    line = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 3,
            "result": {"content": [{"type": "text", "text": "é" + "x" * MAX_MESSAGE_BYTES}]},
        }
    )
    (message,) = read(line.encode() + b"\n")
    assert isinstance(message, McpReply)
    assert message.id == 3
    text = message.result["content"][0]["text"]
    assert text.startswith("éxxx")
    assert text.endswith(f"[cut here: the answer had {len(line)} bytes]")
    assert len(text) < 300_000


def test_a_cut_inside_an_escape_leaves_whole_characters() -> None:
    head = b'{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"ab\\"c\\u00e'
    message = oversized(head, 99)
    assert isinstance(message, McpReply)
    assert message.result["content"][0]["text"].startswith('ab"c\n')


def test_a_message_that_is_too_large_and_has_no_text_fails_its_request() -> None:
    message = oversized(b'{"jsonrpc":"2.0","id":3,"result":{"structuredContent"', 99)
    assert isinstance(message, McpError)
    assert message.id == 3


def test_a_message_of_too_many_values_fails_its_request() -> None:
    values = b"[]," * MAX_VALUES
    assert read(b'{"jsonrpc":"2.0","id":3,"result":[' + values + b"1]}\n") == [
        McpError(3, f"the answer of {len(values) + 37} bytes is over the limit of {MAX_VALUES} values")
    ]


def test_a_batch_is_bounded() -> None:
    batch = json.dumps([{"id": n, "result": 0} for n in range(MAX_BATCH + 1)]).encode()
    assert len(read(batch + b"\n")) == MAX_BATCH


def test_every_line_can_be_counted() -> None:
    assert list(LineSplitter().feed(b"\nx\n{}\n" * 10)) == [None] * 30


def test_one_byte_at_a_time_takes_no_more_memory_than_the_bytes() -> None:
    lines = LineSplitter()
    tracemalloc.start()
    for _ in range(100_000):
        assert list(lines.feed(b"x")) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000


def test_garbage_that_is_too_large_answers_nothing() -> None:
    assert read(b"a" * (MAX_MESSAGE_BYTES + 10) + b'\n{"id":1,"result":1}\n') == [McpReply(1, 1)]


def test_what_utf8_cannot_carry_is_still_sent() -> None:
    assert json.loads(encode({"a": "\ud800"})) == {"a": "\ud800"}
