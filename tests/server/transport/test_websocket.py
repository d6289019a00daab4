"""Messages of a WebSocket are lines and lines are messages, however they are cut. Anything else closes it with a code
and a reason; a silent client is pinged.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from app_server.server.transport import websocket
from app_server.server.transport.socket_streams import (
    ALL_BYTES,
    PATIENCE,
    SHORT_BYTES,
    LongMessageLimiter,
    LongMessageSlot,
)
from app_server.server.transport.websocket import MessageDecoder, WebSocketTransport
from app_server_protocol.framing import Oversized, TransportClosed
from tests.support.byte_streams import MemoryByteStream, byte_pair
from tests.support.virtual_time import in_virtual_time

LIMIT = 100_000
FIN = 0x80


def client_protocol() -> ClientProtocol:
    return ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)


class Peer:
    """Client of an open WebSocket, whose messages the test sends."""

    def __init__(self, stream: MemoryByteStream) -> None:
        self.stream, self.protocol = stream, client_protocol()

    async def send(self) -> None:
        """Send the bytes that the protocol has to send."""
        await self.stream.send(b"".join(self.protocol.data_to_send()))

    async def receive(self) -> Frame:
        """Return the next frame, and send no answer to it."""
        while not (events := self.protocol.events_received()):
            self.protocol.receive_data(await self.stream.receive(1))
        [frame] = events
        assert isinstance(frame, Frame)
        return frame

    async def close_received(self) -> tuple[int, str]:
        """Read to the end; return the code and the reason with which the server has closed."""
        self.protocol.receive_data(await self.stream.receive_all())
        close = self.protocol.close_rcvd
        assert close is not None
        return close.code, close.reason


def opened(
    *,
    unread: bytes = b"",
    to_server: float = math.inf,
    to_client: float = math.inf,
    limit: int = LIMIT,
    slot: LongMessageSlot | None = None,
) -> tuple[WebSocketTransport, Peer]:
    server, client = byte_pair(to_first=to_server, to_second=to_client)
    protocol = ServerProtocol(state=State.OPEN, max_size=limit)
    return WebSocketTransport(server, protocol, unread=unread, slot=slot), Peer(client)


async def read(transport: WebSocketTransport) -> list[bytes | Oversized]:
    return [line async for lines in transport.lines() for line in lines]


def masked(first: int, payload: bytes) -> bytes:
    """Return a client's frame with less than 126 bytes, and its first byte as given."""
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


def masked_head(first: int, size: int) -> bytes:
    return bytes([first, 0xFF]) + size.to_bytes(8) + bytes(4)


# --- what a client sends
def cut(data: bytes, at: Sequence[int]) -> Iterator[bytes]:
    """Yield the pieces of `data` between the positions, each taken modulo its length."""
    places = sorted({place % (len(data) + 1) for place in at})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


@given(
    st.lists(st.tuples(st.text(max_size=200).map(str.encode), st.lists(st.integers(0, 200), max_size=4))),
    st.lists(st.integers(0, 5000), max_size=20),
    st.booleans(),
)
def test_messages_are_whole_however_they_are_cut(
    sent: list[tuple[bytes, list[int]]], chunks: list[int], pings: bool
) -> None:
    client = client_protocol()
    for message, places in sent:
        *fragments, last = cut(message, places)
        send: Callable[[bytes, bool], None] = client.send_text
        for fragment in fragments:
            send(fragment, False)
            send = client.send_continuation
            if pings:
                client.send_ping(b"between fragments")
        send(last, True)
    decoder = MessageDecoder(ServerProtocol(state=State.OPEN, max_size=LIMIT))
    bytes_sent = b"".join(client.data_to_send())
    received = [line for chunk in cut(bytes_sent, chunks) if chunk for line in decoder.feed(chunk)]
    assert received == [message for message, _ in sent]


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_any_bytes_are_survived(chunks: list[bytes]) -> None:
    protocol = ServerProtocol(state=State.OPEN, max_size=1000)
    decoder = MessageDecoder(protocol)
    for chunk in chunks:
        for line in decoder.feed(chunk):
            assert isinstance(line, bytes)
            line.decode()
    assert protocol.parser_exc is None or protocol.close_sent is not None


REFUSED = {
    "binary": (masked(FIN | Opcode.BINARY, b"{}"), CloseCode.UNSUPPORTED_DATA, "expected text messages"),
    "no UTF-8": (masked(FIN | Opcode.TEXT, b'"\xff"'), CloseCode.INVALID_DATA, "expected UTF-8"),
    "half a character": (masked(FIN | Opcode.TEXT, b"\xc3"), CloseCode.INVALID_DATA, "expected UTF-8"),
    "no UTF-8 in fragments": (
        masked(Opcode.TEXT, b"\xc3") + masked(FIN | Opcode.CONT, b"x"),
        CloseCode.INVALID_DATA,
        "expected UTF-8",
    ),
    "not masked": (b"\x81\x02{}", CloseCode.PROTOCOL_ERROR, "masking"),
    "a reserved bit, as compression sets it": (masked(0xC1, b"{}"), CloseCode.PROTOCOL_ERROR, "reserved"),
    "an unknown kind": (masked(0x83, b""), CloseCode.PROTOCOL_ERROR, "opcode"),
    "a fragment of nothing": (masked(FIN | Opcode.CONT, b"{}"), CloseCode.PROTOCOL_ERROR, "continuation"),
    "a message within a message": (
        masked(Opcode.TEXT, b"{") + masked(FIN | Opcode.TEXT, b"{}"),
        CloseCode.PROTOCOL_ERROR,
        "continuation",
    ),
    "too large": (masked_head(FIN | Opcode.TEXT, LIMIT + 1), CloseCode.MESSAGE_TOO_BIG, "100001 bytes"),
    "too large in fragments": (
        masked_head(Opcode.TEXT, LIMIT) + bytes(LIMIT) + masked(FIN | Opcode.CONT, b"x"),
        CloseCode.MESSAGE_TOO_BIG,
        "100000 bytes",
    ),
}


@pytest.mark.parametrize(("sent", "code", "words"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_message_closes_with_a_reason(sent: bytes, code: int, words: str) -> None:
    transport, peer = opened()
    await peer.stream.send(masked(FIN | Opcode.TEXT, b"before") + sent + masked(FIN | Opcode.TEXT, b"after"))
    await peer.stream.send_eof()
    assert await read(transport) == [b"before"]
    assert peer.protocol.state is State.OPEN
    given_code, reason = await peer.close_received()
    assert (given_code, words in reason) == (code, True), reason


async def test_what_a_refused_client_still_sends_is_read_until_it_leaves() -> None:
    """A socket that is closed with unread input may lose the close frame."""
    transport, peer = opened(to_server=0)
    async with anyio.create_task_group() as group:
        group.start_soon(read, transport)
        await peer.stream.send(masked_head(FIN | Opcode.TEXT, LIMIT + 1))
        for _ in range(3):
            await peer.stream.send(b"more of what was refused")
        await peer.stream.aclose()


LONG = b"x" * (SHORT_BYTES + 1)


@pytest.mark.parametrize("fin", [True, False], ids=["in a frame", "in a fragment"])
def test_a_long_message_beside_too_many_closes_with_a_reason(fin: bool) -> None:
    async def play() -> None:
        messages = LongMessageLimiter(ALL_BYTES)
        assert await messages.connection().is_enough_for(len(LONG))
        transport, peer = opened(limit=ALL_BYTES, slot=messages.connection())
        peer.protocol.send_text(LONG, fin=fin)
        sent = b"".join(peer.protocol.data_to_send())
        await peer.stream.send(sent[:-1] if fin else sent)
        async with anyio.create_task_group() as group:
            group.start_soon(read, transport)
            assert (await peer.receive()).opcode is Opcode.CLOSE
            assert anyio.current_time() == PATIENCE
            close = peer.protocol.close_rcvd
            assert close is not None
            assert close.code == CloseCode.TRY_AGAIN_LATER
            assert "others are sending long messages" in close.reason
            await peer.stream.aclose()

    in_virtual_time(play)


def test_a_long_message_gives_its_place_back_when_it_has_come() -> None:
    async def play() -> None:
        messages = LongMessageLimiter(ALL_BYTES)
        transport, peer = opened(limit=ALL_BYTES, slot=messages.connection())
        peer.protocol.send_text(LONG)
        [sent] = peer.protocol.data_to_send()
        async with anyio.create_task_group() as group:
            group.start_soon(read, transport)
            await peer.stream.send(sent[:-1])
            await anyio.sleep(1)
            waiting = messages.connection()
            with anyio.move_on_after(1) as waited:
                await waiting.is_enough_for(len(LONG))
            assert waited.cancelled_caught
            await peer.stream.send(sent[-1:])
            assert await waiting.is_enough_for(len(LONG))
            assert anyio.current_time() == 2
            await peer.stream.aclose()

    in_virtual_time(play)


async def test_a_client_that_closes_is_answered() -> None:
    transport, peer = opened()
    peer.protocol.send_text(b"last words")
    peer.protocol.send_close(1000, "bye")
    await peer.send()
    await peer.stream.send_eof()
    assert await read(transport) == [b"last words"]
    assert await peer.close_received() == (1000, "bye")


async def test_a_client_that_breaks_off_has_left() -> None:
    transport, peer = opened()
    await peer.stream.send(masked(FIN | Opcode.TEXT, b"whole") + b"\x81\x85")
    await peer.stream.aclose()
    assert await read(transport) == [b"whole"]


async def test_what_came_with_the_handshake_is_read_first() -> None:
    transport, peer = opened(unread=masked(FIN | Opcode.TEXT, b"early"))
    peer.protocol.send_text(b"later")
    await peer.send()
    await peer.stream.send_eof()
    assert await read(transport) == [b"early", b"later"]


# --- pings
async def test_a_ping_is_answered() -> None:
    transport, peer = opened()
    peer.protocol.send_ping(b"one")
    await peer.send()
    async with anyio.create_task_group() as group:
        group.start_soon(read, transport)
        pong = await peer.receive()
        group.cancel_scope.cancel()
    assert (pong.opcode, pong.data) == (Opcode.PONG, b"one")


async def test_a_client_that_does_not_read_is_heard_and_gets_its_pong_later() -> None:
    transport, peer = opened(to_client=0)
    heard: list[bytes | Oversized] = []

    async def listen() -> None:
        async for lines in transport.lines():
            heard.extend(lines)

    async with anyio.create_task_group() as group:
        group.start_soon(transport.write, b"unread\n")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(listen)
        peer.protocol.send_ping(b"")
        peer.protocol.send_text(b"stop")
        await peer.send()
        await anyio.wait_all_tasks_blocked()
        assert heard == [b"stop"]
        assert [(await peer.receive()).opcode for _ in range(2)] == [Opcode.TEXT, Opcode.PONG]
        group.cancel_scope.cancel()


async def test_a_flood_of_pings_waits_for_a_client_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MOST_PONGS", 10)
    transport, peer = opened(to_server=0, to_client=0)
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            peer.protocol.send_ping(b"")
            await peer.send()
            sent += 1

    async with anyio.create_task_group() as group:
        group.start_soon(transport.write, b"unread\n")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(read, transport)
        group.start_soon(flood)
        await anyio.wait_all_tasks_blocked()
        assert sent == 11
        group.cancel_scope.cancel()


def test_a_silent_client_is_asked_after_30_seconds_and_gone_60_seconds_later() -> None:
    async def play() -> None:
        transport, peer = opened()
        async with anyio.create_task_group() as group:
            group.start_soon(read, transport)
            assert (await peer.receive()).opcode is Opcode.PING
            assert anyio.current_time() == 30
            assert await peer.close_received() == (CloseCode.INTERNAL_ERROR, "no pong for 60 seconds")
            assert anyio.current_time() == 90
            await peer.stream.aclose()

    in_virtual_time(play)


def test_a_client_that_answers_stays() -> None:
    async def play() -> None:
        transport, peer = opened()
        async with anyio.create_task_group() as group:
            group.start_soon(read, transport)
            for _ in range(10):
                assert (await peer.receive()).opcode is Opcode.PING
                await anyio.sleep(59)
                await peer.send()  # the pong
            assert anyio.current_time() == 30 + 10 * 59
            group.cancel_scope.cancel()

    in_virtual_time(play)


def test_nobody_is_asked_while_something_is_sent() -> None:
    async def play() -> None:
        transport, peer = opened()
        async with anyio.create_task_group() as group:
            group.start_soon(read, transport)
            for _ in range(10):
                await anyio.sleep(29)
                await transport.write(b"news\n")
                assert (await peer.receive()).opcode is Opcode.TEXT
            assert (await peer.receive()).opcode is Opcode.PING
            assert anyio.current_time() == 10 * 29 + 30
            group.cancel_scope.cancel()

    in_virtual_time(play)


def test_a_client_that_is_not_listened_to_is_not_gone() -> None:
    """The server may wait long until it reads on; the pong is there by then."""

    async def play() -> None:
        transport, peer = opened()
        peer.protocol.send_text(b"work")
        await peer.send()
        heard = []
        async for lines in transport.lines():
            heard += lines
            if lines == [b"more"]:
                await peer.stream.send_eof()
            else:
                await anyio.sleep(1000)
                peer.protocol.send_text(b"more")
                await peer.send()
        assert heard == [b"work", b"more"]

    in_virtual_time(play)


# --- what a client receives
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1).map(str.encode), min_size=1
    ),
    st.integers(1, 50),
    st.integers(1, 100),
)
def test_each_line_is_a_message(lines: list[bytes], unfragmented: int, batch: int) -> None:
    async def play() -> bytes:
        transport, peer = opened()
        await peer.stream.send_eof()
        await transport.write(b"\n".join([*lines, b""]))
        await transport.close(1001, "the end")
        return await peer.stream.receive_all()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(websocket, "UNFRAGMENTED", unfragmented)
        patch.setattr(websocket, "BATCH", batch)
        sent = anyio.run(play)
    client = client_protocol()
    client.receive_data(sent)
    frames = [event for event in client.events_received() if isinstance(event, Frame)]
    received, held = [], b""
    for frame in frames:
        assert len(frame.data) <= unfragmented or frame.opcode is Opcode.CLOSE
        if frame.opcode is not Opcode.CLOSE:
            held += bytes(frame.data)
            if frame.fin:
                received.append(held)
                held = b""
    assert received == lines
    assert client.close_rcvd is not None
    assert client.close_rcvd.code == 1001


async def test_a_write_waits_for_the_client() -> None:
    transport, peer = opened(to_client=0)
    written = anyio.Event()

    async def write() -> None:
        await transport.write(b"{}\n")
        written.set()

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        assert not written.is_set()
        assert (await peer.receive()).data == b"{}"
        await written.wait()


async def test_a_write_to_nobody_says_so() -> None:
    transport, peer = opened()
    await peer.stream.aclose()
    with pytest.raises(TransportClosed):
        await transport.write(b"{}\n")


async def test_nothing_follows_a_close_frame() -> None:
    transport, peer = opened()
    async with anyio.create_task_group() as group:
        group.start_soon(transport.close, CloseCode.TRY_AGAIN_LATER, "disconnected: 17 MB unread")
        await anyio.wait_all_tasks_blocked()
        await transport.write(b"{}\n")
        close = await peer.receive()
        assert close.opcode is Opcode.CLOSE
        await peer.send()  # the answer to it
        await peer.stream.send_eof()
    assert peer.protocol.close_rcvd is not None
    assert peer.protocol.close_rcvd.reason == "disconnected: 17 MB unread"
    assert await peer.stream.receive_all() == b""


async def test_nothing_follows_a_write_that_was_given_up() -> None:
    """The next bytes would be read as the rest of its frame."""
    transport, peer = opened(to_client=0)
    async with anyio.create_task_group() as group:
        group.start_soon(transport.write, b"given up\n")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    with pytest.raises(TransportClosed):
        await transport.write(b"next\n")
    await peer.stream.aclose()


def test_a_client_that_does_not_leave_is_left() -> None:
    async def play() -> None:
        transport, _peer = opened()
        await transport.close(CloseCode.GOING_AWAY, "server shutting down")
        assert anyio.current_time() == websocket.CLOSING_SECONDS

    in_virtual_time(play)
