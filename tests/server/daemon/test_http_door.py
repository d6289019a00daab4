"""HTTP clients are checked in one order: Host, Origin, path, token, upgrade. Only then they get a WebSocket."""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed

from app_server.server.daemon.websocket_listener import HEAD_LIMIT, WebSocketListener
from app_server.server.transport.websocket import WebSocketTransport
from tests.support.byte_streams import byte_pair
from tests.support.virtual_time import in_virtual_time

PORT = 4321
TOKEN = "a-token-of-this-server"
LINE_LIMIT = 1 << 20
KEY = "WXgwFnftKt9zp5eCyLqJTw=="
ACCEPTED = "FDrtOi0f55ZvGub21xu4QwSrtio="
"""Accept header that RFC 6455 derives from the key."""


def door(
    *, port: int | None = PORT, token: str | None = TOKEN, why_not: str | None = None, limit: int = LINE_LIMIT
) -> WebSocketListener:
    digest = None if token is None else hashlib.sha256(token.encode()).digest()
    return WebSocketListener(port=port, token_sha256=digest, line_limit=limit, unavailable=lambda: why_not)


GOOD = {
    "Host": f"127.0.0.1:{PORT}",
    "Authorization": f"Bearer {TOKEN}",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}


def request(line: str = "GET / HTTP/1.1", *more: str, **changed: str | None) -> bytes:
    """Return a valid request with changed headers. A `_` in a name stands for `-`; None leaves a header out."""
    headers = GOOD | {name.replace("_", "-"): value for name, value in changed.items()}
    lines = [line, *(f"{name}: {value}" for name, value in headers.items() if value is not None), *more]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def enter(through: WebSocketListener, sent: bytes) -> tuple[WebSocketTransport | None, bytes]:
    """Return the transport of an accepted client, None if it is refused, and the bytes that it received."""
    server, client = byte_pair()
    await client.send_eof()
    transport = await through.enter(server, sent)
    await server.send_eof()
    return transport, await client.receive_all()


async def status(through: WebSocketListener, sent: bytes) -> int:
    transport, answer = await enter(through, sent)
    code = int(answer.split(b" ", 2)[1]) if answer else 0
    assert (transport is not None) == (code == 101)
    return code


async def test_a_client_with_the_token_gets_a_websocket() -> None:
    transport, answer = await enter(door(), request())
    head, _, rest = answer.decode().partition("\r\n\r\n")
    first, *headers = head.split("\r\n")
    assert transport is not None
    assert (first, rest) == ("HTTP/1.1 101 Switching Protocols", "")
    assert {"Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {ACCEPTED}"} <= set(headers)
    assert f"x-codex-websocket-max-unfragmented-message-bytes: {LINE_LIMIT}" in headers


async def test_large_messages_are_announced_as_16_mib_at_most() -> None:
    _, answer = await enter(door(limit=64 << 20), request())
    assert b"x-codex-websocket-max-unfragmented-message-bytes: 16777216\r\n" in answer


async def test_no_extension_and_no_subprotocol_is_agreed_on() -> None:
    more = ("Sec-WebSocket-Extensions: permessage-deflate", "Sec-WebSocket-Protocol: chat")
    _, answer = await enter(door(), request("GET / HTTP/1.1", *more))
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Extensions" not in answer
    assert b"Sec-WebSocket-Protocol" not in answer


async def test_what_a_client_sends_behind_its_request_is_its_first_message() -> None:
    message = b"\x81\x82\0\0\0\0{}"
    transport, _ = await enter(door(), request() + message)
    assert transport is not None
    assert [line async for lines in transport.lines() for line in lines] == [b"{}"]


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("127.0.0.1:4321", PORT, 101),
        ("localhost:4321", PORT, 101),
        ("LocalHost:4321", PORT, 101),
        ("[::1]:4321", PORT, 101),
        ("127.0.0.1", 80, 101),
        ("127.0.0.1", PORT, 403),
        ("127.0.0.1:80", PORT, 403),
        ("127.0.0.1:04321", PORT, 403),
        ("127.0.0.1:4321 ", PORT, 101),  # HTTP strips blanks around a value
        ("127.0.0.1:4321, evil.example", PORT, 403),
        ("evil.example:4321", PORT, 403),
        ("127.0.0.1.evil.example:4321", PORT, 403),
        ("evil127.0.0.1:4321", PORT, 403),
        ("user@127.0.0.1:4321", PORT, 403),
        ("[::1]:", PORT, 403),
        ("::1:4321", PORT, 403),
        ("", PORT, 403),
        (None, PORT, 403),
        # The name that clients of codex use, and tunnels with a port of their own.
        ("localhost", None, 101),
        ("localhost:9999", None, 101),
        ("evil.example", None, 403),
        (None, None, 403),
    ],
)
async def test_the_host_has_to_be_this_machine(host: str | None, port: int | None, expected: int) -> None:
    assert await status(door(port=port), request(Host=host)) == expected


async def test_two_hosts_are_none() -> None:
    assert await status(door(), request("GET / HTTP/1.1", f"Host: 127.0.0.1:{PORT}")) == 403


@pytest.mark.parametrize("origin", ["http://evil.example", f"http://127.0.0.1:{PORT}", "null", ""])
@pytest.mark.parametrize("path", ["/", "/healthz"])
async def test_pages_of_a_browser_are_not_served(origin: str, path: str) -> None:
    assert await status(door(), request(f"GET {path} HTTP/1.1", Origin=origin)) == 403
    assert await status(door(port=None, token=None), request(f"GET {path} HTTP/1.1", Origin=origin)) == 403


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", 101),
        (f"bearer {TOKEN}", 101),
        (f"Bearer  {TOKEN}", 101),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("Bearer \xff", 400),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("", 401),
        (None, 401),
    ],
)
async def test_the_token_has_to_be_the_servers(authorization: str | None, expected: int) -> None:
    assert await status(door(), request(Authorization=authorization)) == expected


async def test_a_token_elsewhere_is_none() -> None:
    assert await status(door(), request(f"GET /?token={TOKEN} HTTP/1.1", Authorization=None)) == 401
    assert await status(door(), request(Authorization=None, Sec_WebSocket_Protocol=TOKEN)) == 401


async def test_no_token_and_a_wrong_one_are_answered_alike() -> None:
    answers = set()
    for authorization in (None, "Bearer wrong"):
        _, answer = await enter(door(), request(Authorization=authorization))
        answers.add(b"\r\n".join(line for line in answer.split(b"\r\n") if not line.startswith(b"Date:")))
    assert len(answers) == 1


@pytest.mark.parametrize("path", ["/", "/rpc", "/rpc?x=y"])
async def test_a_unix_socket_needs_no_token(path: str) -> None:
    sent = request(f"GET {path} HTTP/1.1", Authorization=None, Host="localhost")
    assert await status(door(port=None, token=None), sent) == 101


async def test_each_check_hides_the_next() -> None:
    """A request with every error, in which one after another is corrected."""
    wrong: dict[str, str | None] = {
        "Host": "evil.example",
        "Origin": "http://a",
        "Authorization": "Bearer wrong",
        "Upgrade": "h2c",
    }
    line = "GET /nowhere HTTP/1.1"
    seen = [await status(door(why_not="full"), request(line, **wrong))]
    for name, right in (("Host", GOOD["Host"]), ("Origin", None)):
        wrong |= {name: right}
        seen.append(await status(door(why_not="full"), request(line, **wrong)))
    line = "GET / HTTP/1.1"
    seen.append(await status(door(why_not="full"), request(line, **wrong)))
    wrong["Authorization"] = GOOD["Authorization"]
    seen.append(await status(door(why_not="full"), request(line, **wrong)))
    seen.append(await status(door(), request(line, **wrong)))
    wrong["Upgrade"] = "websocket"
    seen.append(await status(door(), request(line, **wrong)))
    assert seen == [403, 403, 404, 401, 503, 426, 101]


@pytest.mark.parametrize(
    ("path", "why_not", "expected"),
    [
        ("/readyz", None, 200),
        ("/healthz", None, 200),
        ("/readyz?verbose", None, 200),
        ("/readyz", "256 clients are connected", 503),
        ("/healthz", "256 clients are connected", 200),
        ("/readyz/", None, 404),
        ("/metrics", None, 404),
        ("//", None, 404),
    ],
)
async def test_health_needs_no_token(path: str, why_not: str | None, expected: int) -> None:
    sent = request(f"GET {path} HTTP/1.1", **dict.fromkeys(GOOD.keys() - {"Host"}))
    assert await status(door(why_not=why_not), sent) == expected


async def test_why_nobody_can_enter_is_said() -> None:
    _, answer = await enter(door(why_not="256 clients are connected"), request())
    assert answer.endswith(b"\r\n\r\n256 clients are connected\n")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (request(Sec_WebSocket_Version="12"), 400),
        (request(Sec_WebSocket_Key="short"), 400),
        (request(Connection="close"), 426),
        (request("GETS / HTTP/1.1"), 400),
        (request("GET / HTTP/2.0"), 400),
        (request("GET /"), 400),
        (request("GET /\xff HTTP/1.1"), 400),
        (request("GET / HTTP/1.1", "no header"), 400),
        (request("GET / HTTP/1.1", "Content-Length: 5"), 400),
        (request("GET / HTTP/1.1", "Transfer-Encoding: chunked"), 400),
        (request("GET / HTTP/1.1", *(f"X-{number}: y" for number in range(1000))), 400),
        (request(f"GET /{'x' * 10_000} HTTP/1.1"), 400),
    ],
)
async def test_what_is_no_such_request_is_refused(sent: bytes, expected: int) -> None:
    assert await status(door(), sent) == expected


@given(st.binary(max_size=400), st.integers(0, 300))
def test_any_bytes_are_survived(noise: bytes, at: int) -> None:
    """The bytes are anywhere in a request, or replace it."""

    async def play() -> None:
        good = request()
        for sent in (good[:at] + noise + good[at:], b"G" + noise):
            assert await status(door(), sent) in (0, 101, 200, 400, 401, 403, 404, 426)

    anyio.run(play)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_a_request_may_come_in_pieces(sizes: list[int]) -> None:
    async def play() -> None:
        server, client = byte_pair()
        sent, message = request(), b"\x81\x82\0\0\0\0{}"
        left = sent + message
        for size in sizes:
            left, piece = left[size:], left[:size]
            await client.send(piece)
        await client.send(left)
        await client.send_eof()
        transport = await door().enter(server, b"")
        assert transport is not None
        assert [line async for lines in transport.lines() for line in lines] == [b"{}"]

    anyio.run(play)


async def test_a_large_request_is_left_without_an_answer_and_not_read_further() -> None:
    server, client = byte_pair(to_first=0)
    padding = b"X-Large: " + b"x" * 4000 + b"\r\n"
    sent = b"GET / HTTP/1.1\r\n" + padding * 3
    async with anyio.create_task_group() as group:
        group.start_soon(client.send, padding + b"x" * 1000)
        assert len(sent) < HEAD_LIMIT
        assert await door().enter(server, sent) is None
        await server.aclose()
    assert await client.receive_all() == b""


async def test_the_largest_request_is_served() -> None:
    room = HEAD_LIMIT - len(request("GET / HTTP/1.1", *(f"X-{n}: {'x' * 7000}" for n in (1, 2)), "X-Last: "))
    for more, expected in ((0, 101), (1, 0)):
        last = f"X-Last: {'x' * (room + more)}"
        sent = request("GET / HTTP/1.1", *(f"X-{n}: {'x' * 7000}" for n in (1, 2)), last)
        assert await status(door(), sent) == expected


def test_a_slow_request_is_left_after_10_seconds() -> None:
    async def play() -> None:
        server, client = byte_pair()

        async def dribble() -> None:
            for byte in request():
                await client.send(bytes([byte]))
                await anyio.sleep(1)

        async with anyio.create_task_group() as group:
            group.start_soon(dribble)
            assert await door().enter(server, b"G") is None
            assert anyio.current_time() == 10
            group.cancel_scope.cancel()

    in_virtual_time(play)


def test_many_wrong_tokens_are_answered_slowly_and_the_right_one_at_once() -> None:
    async def play() -> None:
        through = door()
        wrong, right = request(Authorization="Bearer wrong"), request()
        for _ in range(10):
            assert await status(through, wrong) == 401
        assert anyio.current_time() == 0
        for number in range(3):
            assert await status(through, wrong) == 401
            assert anyio.current_time() == number + 1
        assert await status(through, right) == 101
        assert anyio.current_time() == 3
        await anyio.sleep(61)
        assert await status(through, wrong) == 401
        assert anyio.current_time() == 64

    in_virtual_time(play)


# --- with a real client
Connect = Callable[[], Awaitable[ClientConnection]]


@pytest.fixture(params=["tcp", "unix"])
async def connected(request: pytest.FixtureRequest, short_folder: Path) -> AsyncIterator[Connect]:
    """Yield a function that connects to a server which echoes each message."""
    through: WebSocketListener

    async def echo(stream: ByteStream) -> None:
        async with stream:
            transport = await through.enter(stream, await stream.receive(1))
            assert transport is not None
            async for lines in transport.lines():
                for line in lines:
                    assert isinstance(line, bytes)
                    await transport.write(line + b"\n")

    async with anyio.create_task_group() as group:
        if request.param == "tcp":
            tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
            port = tcp.extra(SocketAttribute.local_port)
            through = door(port=port, limit=32 << 20)
            group.start_soon(tcp.serve, echo)
            headers = {"Authorization": f"Bearer {TOKEN}"}
            url = f"ws://127.0.0.1:{port}/"
            yield lambda: connect(url, additional_headers=headers, max_size=None, proxy=None)
        else:
            path = str(short_folder / "s.sock")
            through = door(port=None, token=None, limit=32 << 20)
            group.start_soon((await anyio.create_unix_listener(path)).serve, echo)
            yield lambda: unix_connect(path, max_size=None)
        group.cancel_scope.cancel()


async def test_a_real_client_is_served(connected: Connect) -> None:
    client = await connected()
    assert client.protocol.extensions == []
    for message in ("{}", "ä€😀", "x" * (20 << 20)):
        await client.send(message)
        assert await client.recv() == message
    await client.send(["frag", "ments"])
    assert await client.recv() == "fragments"
    await (await client.ping())
    await client.close(1000, "bye")
    assert (client.close_code, client.close_reason) == (1000, "bye")


@pytest.mark.parametrize(
    ("sent", "code"), [(b"binary", 1003), ("x" * (33 << 20), 1009)], ids=["binary", "large"]
)
async def test_a_real_client_learns_why_it_is_refused(
    connected: Connect, sent: str | bytes, code: int
) -> None:
    client = await connected()
    with contextlib.suppress(ConnectionClosed):  # the server may still be sending
        await client.send(sent)
    await client.wait_closed()
    assert client.close_code == code
    assert client.close_reason
