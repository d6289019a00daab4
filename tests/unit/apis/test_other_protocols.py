"""A client that speaks something else learns how to start the right server."""

import pytest

from app_server.apis.errors import initialize_of_another_protocol, of_another_protocol
from protocol.acp import methods as agent
from protocol.base import Json
from protocol.jsonrpc import ParseError, parse_message
from protocol.v1 import methods as v1
from protocol.v2 import methods as v2


@pytest.mark.parametrize(
    ("method", "acp", "words"),
    [
        ("session/new", False, "app-server acp"),
        ("thread/start", True, "without `acp`"),
        ("newConversation", True, "without `acp`"),
        ("tools/list", False, "not as an MCP server"),
        ("tools/list", True, "not as an MCP server"),
        ("textDocument/didOpen", False, "not as a language server"),
    ],
)
def test_a_method_of_another_protocol_is_recognized(method: str, acp: bool, words: str) -> None:
    text = of_another_protocol(method, acp=acp)
    assert text.startswith(f". `{method}` is a method of ")
    assert words in text


@pytest.mark.parametrize(("method", "acp"), [("thread/no", False), ("session/no", True), ("else", False)])
def test_an_unknown_method_of_this_protocol_gets_no_advice(method: str, acp: bool) -> None:
    assert of_another_protocol(method, acp=acp) == ""


@pytest.mark.parametrize(
    ("params", "acp", "words"),
    [
        ({"protocolVersion": 1, "clientCapabilities": {}}, False, "app-server acp"),
        ({"clientInfo": {"name": "x", "version": "1"}}, True, "without `acp`"),
        ({}, False, ""),
        ({"protocolVersion": True}, False, ""),
        ({"protocolVersion": "1"}, True, ""),
        (None, True, ""),
    ],
)
def test_an_initialize_of_another_protocol_is_recognized(params: Json, acp: bool, words: str) -> None:
    text = initialize_of_another_protocol(params, acp=acp)
    assert (words in text, bool(text)) == (True, bool(words))


def test_no_method_is_taken_for_one_of_another_protocol() -> None:
    for table in (v1.TABLE, v2.TABLE):
        for row in table.client_requests.values():
            assert of_another_protocol(row.method, acp=False) == "", row.method
    for row in agent.TABLE.client_requests.values():
        assert of_another_protocol(row.method, acp=True) == "", row.method


@pytest.mark.parametrize("line", [b"Content-Length: 52\r", b"GET / HTTP/1.1\r"])
def test_another_framing_is_told(line: bytes) -> None:
    with pytest.raises(ParseError, match="one JSON object on one line, without headers"):
        parse_message(line)
