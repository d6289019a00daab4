"""Servers over streamable HTTP, and arbitrary lines of any server."""

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.mcp.mcp_errors import MAX_BATCH, MAX_MESSAGE_BYTES
from app_server.engine.mcp.results import McpCallOutcome
from app_server.engine.mcp.rpc_messages import (
    Incoming,
    LineSplitter,
    McpError,
    McpReply,
    McpServerRequest,
    encode,
    oversized,
    parse,
    parse_json,
)
from app_server_protocol.encoding import Json
from app_server_protocol.json_limits import MAX_VALUES
from app_server_protocol.mcp import McpAuthStatus
from tests.engine.mcp.conftest import Rig, both_eras, http
from tests.engine.mcp.scripted_http import HANDSHAKE, ScriptedHttp, begin_events, reply_json
from tests.support.http_server import HttpHandler
from tests.support.waiting import until

ECHO = "mcp__web__echo"


async def test_headers_session_and_version_go_with_every_request(rig: Rig) -> None:
    def answer(handler: HttpHandler, message: Json) -> bool:
        if message.get("method") == "initialize":
            old = HANDSHAKE | {"protocolVersion": "2025-03-26"}
            reply_json(handler, message, old, Mcp_Session_Id="s-1")
            return True
        return False

    rig.user["TOKEN"] = "t0k3n"
    script = ScriptedHttp(answer)
    with script.serving() as url:
        config = http(url, bearer_token_env_var="TOKEN", http_headers={"X-One": "1"})
        async with rig.opened(config) as mcp:
            assert not (await mcp.requests.call(ECHO, {})).is_error
            assert mcp.requests.auth_statuses() == {"web": McpAuthStatus.BEARER_TOKEN}
    first, *others = [one.headers for one in script.asked]
    assert "Mcp-Session-Id" not in first
    assert {one["Mcp-Session-Id"] for one in others} == {"s-1"}
    assert {one["MCP-Protocol-Version"] for one in others} == {"2025-03-26"}
    assert {one["Authorization"] for one in (first, *others)} == {"Bearer t0k3n"}
    assert {one["X-One"] for one in (first, *others)} == {"1"}
    assert script.asked[-1].method == "DELETE"


async def test_a_proxy_and_certificates_are_the_users_and_not_the_processs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = ScriptedHttp()
    with script.serving() as url:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        async with rig.opened(http(url)) as mcp:
            assert mcp.failures() == ()
        rig.user["HTTP_PROXY"] = url
        async with rig.opened(http("http://mcp.test/mcp")) as mcp:
            assert mcp.failures() == ()
        assert script.asked[-1].headers["Host"] == "mcp.test"
        rig.user["SSL_CERT_FILE"] = str(tmp_path / "none")
        assert "SSL_CERT_FILE names no file" in await failure(rig, "https://mcp.test/mcp")


async def failure(rig: Rig, url: str, **settings: Json) -> str:
    """Return the error with which a server does not start."""
    async with rig.opened(http(url, **settings)) as mcp:
        (failure,) = mcp.failures()
    return failure.message


async def outcome(
    rig: Rig, answer: Callable[[HttpHandler, Json], object], *, modern: bool = False, **settings: Json
) -> McpCallOutcome:
    """Return the outcome of a call at a server of one of the eras. `answer` answers the call, and no other request."""
    answers = {"tools/call": answer}
    if modern:
        answers |= {"initialize": refuse_unread, "server/discover": discovered}

    def answer_call(handler: HttpHandler, message: Json) -> bool:
        own = answers.get(message.get("method"))
        if own is not None:
            own(handler, message)
        return own is not None

    with ScriptedHttp(answer_call).serving() as url:
        async with rig.opened(http(url, **settings)) as mcp:
            return await mcp.requests.call(ECHO, {})


async def test_a_server_that_wants_a_login_says_so(rig: Rig) -> None:
    def answer(handler: HttpHandler, message: Json) -> bool:
        handler.reply(401, b"no", WWW_Authenticate="Bearer")
        return True

    with ScriptedHttp(answer).serving() as url:
        async with rig.opened(http(url)) as mcp:
            (failure,) = mcp.failures()
            assert failure.message == "The web MCP server is not logged in. Run `codex mcp login web`."
            assert mcp.requests.auth_statuses() == {"web": McpAuthStatus.NOT_LOGGED_IN}


async def test_a_redirect_is_not_followed_with_the_token(rig: Rig) -> None:
    elsewhere = ScriptedHttp()
    rig.user["TOKEN"] = "t0k3n"
    with elsewhere.serving() as other:

        def answer(handler: HttpHandler, message: Json) -> bool:
            handler.reply(307, Location=other)
            return True

        with ScriptedHttp(answer).serving() as url:
            told = await failure(rig, url, bearer_token_env_var="TOKEN")
    assert "leads elsewhere, which is not followed" in told
    assert "t0k3n" not in told
    assert elsewhere.asked == []


async def test_nobody_there_and_no_token(rig: Rig) -> None:
    with ScriptedHttp().serving() as url:
        pass
    secret = url.replace("http://", "http://me:secret@") + "?key=secret"
    async with rig.opened(http(secret), http(url, name="token", bearer_token_env_var="NONE")) as mcp:
        messages = {failure.server: failure.message for failure in mcp.failures()}
    assert messages["web"] == (
        f"MCP client for `web` failed to start: handshaking with MCP server failed: cannot reach {url}: "
        "Connection refused"
    )
    assert messages["token"] == (
        "MCP client for `token` failed to start: Environment variable NONE for MCP server 'token' is not set"
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://[bad",
        "http://127.0.0.1:999999/mcp",
        "ftp://x/",
        "nonsense",
        "",
        "http://exa mple/",
        "http://\0/",
    ],
)
async def test_an_invalid_url_causes_one_message(rig: Rig, url: str) -> None:
    assert (await failure(rig, url)).startswith("MCP client for `web` failed to start: ")


async def test_headers_that_are_none_cost_one_message(rig: Rig) -> None:
    with ScriptedHttp().serving() as url:
        assert "fit" not in await failure(rig, url, http_headers={"X": "ün\nfit"})


async def test_a_stream_that_never_answers_is_given_up(rig: Rig) -> None:
    script = ScriptedHttp()

    def answer(handler: HttpHandler, message: Json) -> bool:
        if message.get("method") != "tools/call":
            return False
        begin_events(handler)
        with contextlib.suppress(OSError):
            while not script.stop.wait(0.01):
                handler.wfile.write(b": still here\n\ndata: {}\n\n")
        return True

    script.answer = answer
    with script.serving() as url:
        async with rig.opened(http(url, tool_timeout_sec=0.5)) as mcp:
            outcome = await mcp.requests.call(ECHO, {})
            assert "timed out awaiting tools/call after 500ms" in (outcome.error or "")
            await until(lambda: bool(script.messages("notifications/cancelled")))


@both_eras
async def test_an_endless_event_is_cut(rig: Rig, modern: bool) -> None:
    def answer(handler: HttpHandler, message: Json) -> None:
        begin_events(handler)
        with contextlib.suppress(OSError):
            handler.wfile.write(b"data: ")
            for _ in range(400):
                handler.wfile.write(b"x" * 100_000)

    assert "over the limit" in (
        (await outcome(rig, answer, modern=modern, tool_timeout_sec=20.0)).error or ""
    )


@both_eras
async def test_an_endless_body_takes_little_memory_and_no_more_time_than_the_call_has(
    rig: Rig, modern: bool
) -> None:
    def answer(handler: HttpHandler, message: Json) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"x" * 100_000)

    tracemalloc.start()
    try:
        failed = await outcome(rig, answer, modern=modern, tool_timeout_sec=1.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "timed out awaiting tools/call after 1s" in (failed.error or "")
    assert peak < 5 * MAX_MESSAGE_BYTES


@both_eras
async def test_an_answer_among_other_events_is_found(rig: Rig, modern: bool) -> None:
    def answer(handler: HttpHandler, message: Json) -> None:
        begin_events(handler)
        result = {"content": [{"type": "text", "text": "found"}]}
        found = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        noise = 'data: not json\n\n: comment\n\nevent: message\ndata: {"method":"notifications/progress"}\n\n'
        handler.wfile.write((noise + f"id: 1\ndata: {found}\n\n").encode())

    assert (await outcome(rig, answer, modern=modern)).payload().content == '[{"text":"found","type":"text"}]'


BAD = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-7,"message":"bad"}}'


@both_eras
@pytest.mark.parametrize(
    ("status", "body", "kind", "expected"),
    [
        (500, b"oh no", "text/plain", "answered 500"),
        (200, b"<html>", "text/html", "ended its answer without answering"),
        (200, b"not json", "application/json", "ended its answer without answering"),
        (400, BAD, "application/json", "Mcp error: -7: bad"),
        (404, BAD, "application/json", "Mcp error: -7: bad"),
    ],
)
async def test_an_answer_that_is_none_fails_the_call(
    rig: Rig, status: int, body: bytes, kind: str, expected: str, modern: bool
) -> None:
    def answer(handler: HttpHandler, message: Json) -> None:
        handler.reply(status, body % message["id"] if b"%d" in body else body, Content_Type=kind)

    assert expected in ((await outcome(rig, answer, modern=modern)).error or "")


async def test_a_session_that_the_server_forgot_is_begun_again(rig: Rig) -> None:
    script = ScriptedHttp()

    def answer(handler: HttpHandler, message: Json) -> bool:
        method, begun = message.get("method"), len(script.messages("initialize"))
        if method == "initialize":
            reply_json(handler, message, HANDSHAKE, Mcp_Session_Id=f"s-{begun}")
            return True
        if method == "tools/call" and begun == 1:
            handler.reply(404)
            return True
        return False

    script.answer = answer
    with script.serving() as url:
        async with rig.opened(http(url)) as mcp:
            assert not (await mcp.requests.call(ECHO, {})).is_error
            assert not (await mcp.requests.call(ECHO, {})).is_error
    assert script.messages("tools/call")[-1].headers["Mcp-Session-Id"] == "s-2"


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
        McpError(1, "Mcp error: -5: no([1])", -5, [1])
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


def test_a_cut_inside_an_escape_leaves_whole_characters() -> None:
    head = b'{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"ab\\"c\\u00e'
    message = oversized(head, 99)
    assert isinstance(message, McpReply)
    assert message.result["content"][0]["text"].startswith('ab"c\n')


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{', [McpError(3, "its answer cannot be read")]),
        (b'{"id": 3, "error": ]', [McpError(3, "its answer cannot be read")]),
        (b'{"jsonrpc":"2.0","id":3,"method":"roots/list","params":{', []),
        (b'{"jsonrpc":"2.0","result":{"id":3,', []),
        (b'[{"jsonrpc":"2.0","id":3,"result":', []),
        (b'"id":3,', []),
    ],
)
def test_an_answer_that_cannot_be_read_ends_its_request(line: bytes, found: list[Incoming]) -> None:
    assert read(line + b"\n") == found


# --- servers that refuse
def refusing(
    handshake: Callable[[HttpHandler, Json], None], discovery: Callable[[HttpHandler, Json], None]
) -> ScriptedHttp:
    def answer(handler: HttpHandler, message: Json) -> bool:
        refuse = {"initialize": handshake, "server/discover": discovery}.get(message.get("method"))
        if refuse is not None:
            refuse(handler, message)
        return refuse is not None

    return ScriptedHttp(answer)


def refuse_unread(handler: HttpHandler, message: Json) -> None:
    error = {"code": -32600, "message": "read the new specification"}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    handler.reply(400, body, Content_Type="application/json; charset=utf-8")


def discovered(handler: HttpHandler, message: Json) -> None:
    found = {"resultType": "complete", "supportedVersions": ["2025-11-25", "2026-07-28"], "capabilities": {}}
    reply_json(handler, message, found)


def status(code: int) -> Callable[[HttpHandler, Json], None]:
    return lambda handler, message: handler.reply(code, b"no", Content_Type="text/plain")


async def test_an_error_that_names_no_request_refuses_the_handshake(rig: Rig) -> None:
    script = refusing(refuse_unread, discovered)
    with script.serving() as url:
        async with rig.opened(http(url)) as mcp:
            assert not (await mcp.requests.call(ECHO, {})).is_error
    assert [one.message["method"] for one in script.asked] == [
        "initialize", "server/discover", "tools/list", "tools/call",
    ]  # fmt: skip
    assert {one.headers["MCP-Protocol-Version"] for one in script.asked[1:]} == {"2026-07-28"}


@pytest.mark.parametrize("code", [401, 404, 500])
async def test_other_refusals_of_the_handshake_are_the_reason(rig: Rig, code: int) -> None:
    script = refusing(status(code), discovered)
    with script.serving() as url:
        async with rig.opened(http(url)) as mcp:
            (failure,) = mcp.failures()
    assert failure.auth_required is (code == 401)
    assert code == 401 or f"answered {code}" in failure.message
    assert [one.message["method"] for one in script.asked] == ["initialize"]


@pytest.mark.parametrize("refuse", [refuse_unread, status(404), status(500), discovered])
async def test_a_refused_discovery_leads_to_the_handshake(
    rig: Rig, refuse: Callable[[HttpHandler, Json], None]
) -> None:
    def old(handler: HttpHandler, message: Json) -> None:
        if refuse is discovered:
            reply_json(handler, message, {"supportedVersions": ["2025-06-18"], "capabilities": {}})
        else:
            refuse(handler, message)

    rig.discovers_first = True
    script = refusing(lambda handler, message: reply_json(handler, message, HANDSHAKE), old)
    with script.serving() as url:
        async with rig.opened(http(url)) as mcp:
            assert not (await mcp.requests.call(ECHO, {})).is_error
    assert [one.message["method"] for one in script.asked if one.message] == [
        "server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call",
    ]  # fmt: skip
    assert "MCP-Protocol-Version" not in script.asked[1].headers
    assert script.asked[-1].headers["MCP-Protocol-Version"] == "2025-06-18"
    assert "Mcp-Method" not in script.asked[-1].headers


async def test_a_discovery_that_needs_a_login_says_so(rig: Rig) -> None:
    rig.discovers_first = True
    with refusing(refuse_unread, status(401)).serving() as url:
        async with rig.opened(http(url)) as mcp:
            (failure,) = mcp.failures()
    assert failure.auth_required


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
