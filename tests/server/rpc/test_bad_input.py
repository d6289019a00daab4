"""Bytes of every kind on stdin: the server survives, reports the error where it can, and the next request works.

The classification of lines is tested in `tests/protocol/test_wire_jsonrpc.py`.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pipes import PATIENCE, Piped

pytestmark = pytest.mark.process

PARSE, INVALID = -32700, -32600
ASK = b'{"id":"q","method":"getUserAgent"}'
NEW = b'{"id":"q","method":"newConversation","params":%s}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Piped]:
    with Piped(tmp_path_factory.mktemp("input"), environment={"APP_SERVER_LOG": "info"}) as server:
        yield server.initialize()


# --- lines from which no request can be read
@pytest.mark.parametrize(
    ("line", "code", "count"),
    [
        (b"not json at all\n", PARSE, 1),
        (b'{"id":"q","method":"getUserAgent","x":"\xff\xfe"}\n', PARSE, 1),
        (ASK + ASK + b"\n", PARSE, 1),
        (b'{\n"id":"q",\n"method":"getUserAgent"\n}\n', PARSE, 4),
        (b"[" * 1_000_000 + b"\n", PARSE, 1),
        (b"\x00" * 1000 + b"\n", PARSE, 1),
        (b"[" + ASK + b"," + ASK + b"]\n", INVALID, 1),
        (b"[]\n", INVALID, 1),
        (b'{"id":null,"method":"getUserAgent"}\n', INVALID, 1),
        (b'{"id":1.5,"method":"getUserAgent"}\n', INVALID, 1),
        (b'{"id":1000000000000000000000000000000,"method":"getUserAgent"}\n', INVALID, 1),
        (b'{"id":"a","id":"b","method":"getUserAgent"}\n', INVALID, 1),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else str(value),
)
def test_a_line_without_a_readable_id_gets_an_error_without_one(
    server: Piped, line: bytes, code: int, count: int
) -> None:
    answers = server.answers_to(line)
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(None, code)] * count
    assert all(len(json.dumps(answer)) < 1000 for answer in answers), "what was sent is not sent back"


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"q","method":5}\n',
        b'{"id":"q","params":{}}\n',
        b'{"id":"q","method":"getUserAgent","params":{"a":1,"a":2}}\n',
        b'{"id":"q","method":"no/such"}\n',
        b'{"id":"q","method":"' + b"x" * 1_000_000 + b'"}\n',
        b'{"id":"q","method":"a\\u0000\\r\\nb"}\n',
        b'{"id":"q","method":"execCommandApproval","params":{}}\n',
        b'{"id":"q","method":"\\ud800"}\n',
        NEW % b'{"cwd":"\\ud800"}',
        NEW % b'{"cwd":"/tmp/\\u0000x"}',
        NEW % b"[1]",
    ],
    ids=lambda line: repr(line[:60]),
)
def test_a_request_that_makes_no_sense_gets_its_error(server: Piped, line: bytes) -> None:
    (answer,) = server.answers_to(line)
    assert answer["id"] == "q"
    assert answer["error"]["code"] in (INVALID, -32601, -32602)
    assert len(json.dumps(answer)) < 2000, "what was sent is not sent back"


@pytest.mark.parametrize(
    "line",
    [
        b"\n\n   \n\t\n",
        b"\r\n\r\n",
        b'{"method":"no/such"}\n',
        b'{"method":"newConversation","params":{}}\n',
        b'{"id":4242,"result":{"decision":"approved"}}\n',
        b'{"id":"zz","error":{"code":-1,"message":"no"}}\n',
        b'{"id":4242,"result":{},"error":{"code":-1,"message":"no"}}\n',
    ],
    ids=lambda line: repr(line[:60]),
)
def test_what_asks_for_nothing_is_not_answered(server: Piped, line: bytes) -> None:
    assert server.answers_to(line) == []


@pytest.mark.parametrize(
    "line",
    [
        ASK + b"\r\n",
        b"  " + ASK + b"  \n",
        b"\xef\xbb\xbf" + ASK + b"\n",
        b'{"jsonrpc":"1.0","id":"q","method":"getUserAgent","more":[1]}\n',
        b'{"id":"q","method":"getUserAgent","params":null}\n',
        b'{"id":"q","method":"getUserAgent","params":"x"}\n',
        b'{"id":"q","method":"getUserAgent","result":{}}\n',
    ],
    ids=lambda line: repr(line[:60]),
)
def test_what_is_odd_but_plain_is_served(server: Piped, line: bytes) -> None:
    (answer,) = server.answers_to(line)
    assert answer["id"] == "q"
    assert "result" in answer


def test_requests_under_one_id_are_each_answered(server: Piped) -> None:
    assert len(server.answers_to((ASK + b"\n") * 3)) == 3


def test_a_line_that_comes_byte_by_byte_is_served(server: Piped) -> None:
    for byte in ASK:
        server.write(bytes([byte]))
    (answer,) = server.answers_to(b"\n")
    assert "result" in answer


def test_a_flood_of_notifications_leaves_nothing_behind(server: Piped) -> None:
    assert server.healthy()
    before = server.memory()
    assert server.answers_to(b'{"method":"no/such","params":{}}\n' * 100_000) == []
    assert server.memory() - before < 64 << 20


def test_what_a_client_sends_wrong_is_in_the_log_but_not_its_content(server: Piped) -> None:
    server.answers_to(b'{"id": "q", "secret-7": \n')
    server.answers_to(b'{"id":4711,"result":{}}\n')
    log = server.log.read_text()
    assert "unusable message" in log
    assert "4711" in log
    assert "secret-7" not in log


# --- lines that are too long
def test_a_line_over_the_limit_is_dropped_while_it_comes(tmp_path: Path) -> None:
    limit = 1 << 20
    with Piped(tmp_path, environment={"APP_SERVER_MAX_LINE_BYTES": str(limit)}) as server:
        server.initialize()
        fits = b'{"id":"q","method":"' + b"x" * (limit - 22) + b'"}'
        assert len(fits) == limit
        (answer,) = server.answers_to(fits + b"\n")
        assert answer["id"] == "q"
        (answer,) = server.answers_to(fits[:-2] + b'x"}\n')
        assert (answer["id"], answer["error"]["code"]) == (None, PARSE)
        assert str(limit + 1) in answer["error"]["message"]
        before = server.memory()
        (answer,) = server.answers_to(b"x" * (64 << 20) + b"\n")
        assert answer["error"]["code"] == PARSE
        assert server.memory() - before < 32 << 20


def test_a_message_of_many_megabytes_is_served(server: Piped) -> None:
    """The message is below the limit: clients send images inline."""
    big = json.dumps({"id": "q", "method": "userInfo", "params": {"x": "y" * (40 << 20)}}).encode() + b"\n"
    (answer,) = server.answers_to(big)
    assert "result" in answer


# --- much at once
def test_ten_thousand_requests_at_once_are_all_answered(server: Piped) -> None:
    lines = b"".join(b'{"id":%d,"method":"userInfo"}\n' % n for n in range(100_000, 110_000))
    answers = server.answers_to(lines)
    assert sorted(answer["id"] for answer in answers) == list(range(100_000, 110_000))
    assert all("result" in answer for answer in answers)


def test_a_client_that_does_not_read_holds_up_only_itself(server: Piped) -> None:
    """Unread messages wait in bounded queues, and arrive once the client reads."""
    assert server.healthy()
    before = server.memory()
    count = 30_000
    lines = b"".join(b'{"id":%d,"method":"getUserAgent"}\n' % n for n in range(200_000, 200_000 + count))
    with server.reading_nothing():
        writing = threading.Thread(target=server.write, args=(lines,))
        writing.start()
        writing.join(2)
        grown = server.memory() - before
    answers = [server.hear(PATIENCE) for _ in range(count)]
    writing.join()
    assert [answer["id"] for answer in answers if "result" in answer]
    assert len({answer["id"] for answer in answers}) == count
    assert grown < 64 << 20
