"""Bytes into each stage of a connection to a shared server, whatever they are: others are served all the same."""

import logging
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import example, given
from hypothesis import strategies as st

from app_server.places.socket_place import SocketPlace
from app_server.proxy.preface import preface
from tests.fuzz.mutation import chunks, mutated, thorough
from tests.support.receiving import dialled, receiving
from tests.support.shared import read_line

PREFACE = preface(7, None, "/w", {"A": "b"}, {"options": {"config": ["a=1"]}})
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: WXgwFnftKt9zp5eCyLqJTw==\r\n\r\n"
)
FRAME = b"\x81\x82\x00\x00\x00\x00{}"
STARTS = (
    PREFACE,
    b'{"preface":1,"ask":"status"}\n',
    b'{"id":1,"method":"initialize"}\n',
    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    UPGRADE + FRAME,
    PREFACE + UPGRADE + FRAME,
)


class Errors(logging.Handler):
    """Keeps what a server logs as a fault of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


class Server:
    """A reception in a thread of its own."""

    def __init__(self, place: SocketPlace, errors: Errors) -> None:
        self.place, self.errors = place, errors
        self.other = dialled(place)
        """A client that is served beside the one that says anything."""

    def answers_to(self, pieces: Sequence[bytes]) -> bytes:
        """Return all that a client gets for these bytes, until it is closed."""
        heard = b""
        with dialled(self.place) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while some := connection.recv(1 << 16):
                    heard += some
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was closed with input that nobody reads
        return heard

    def serves_others(self) -> bool:
        self.other.sendall(b"{}\n")
        return read_line(self.other) == b"{}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    errors = Errors()
    log = logging.getLogger("app_server")
    log.addHandler(errors)
    with (
        tempfile.TemporaryDirectory(prefix="t-") as folder,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(receiving(Path(folder))) as (_, place),
    ):
        server = Server(place, errors)
        yield server
        server.other.close()
    log.removeHandler(errors)


@thorough
@given(data=st.data(), said=mutated(STARTS) | st.binary(max_size=200))
@example(data=None, said=PREFACE)
@example(data=None, said=UPGRADE + FRAME)
def test_any_bytes_end_their_own_connection_only(
    server: Server, data: st.DataObject | None, said: bytes
) -> None:
    server.answers_to([said] if data is None else data.draw(chunks(said)))
    assert server.errors.found == []
    assert server.serves_others()


@pytest.mark.parametrize(
    "said", STARTS, ids=["proxy", "daemon", "lines", "health", "WebSocket", "WebSocket over a proxy"]
)
def test_what_the_bytes_are_made_of_is_answered(server: Server, said: bytes) -> None:
    """Else the mutations would try nothing."""
    assert server.answers_to([said])
