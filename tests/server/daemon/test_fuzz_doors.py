"""Arbitrary bytes at each stage of a connection to a shared server: other clients are still served."""

import logging
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import example, given
from hypothesis import strategies as st

from app_server.engine.support.socket_paths import SocketPaths
from app_server.server.proxy.connect import preface
from tests.support.fuzz_mutation import chunks, mutated, thorough
from tests.support.pipes import HEALTH
from tests.support.receiving import dialled, receiving
from tests.support.shared import INITIALIZE, answer_of, shared_homes

pytestmark = pytest.mark.fuzz

PREFACE = preface(7, None, "/w", {"A": "b"}, {"options": {"config": ["a=1"]}})
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: WXgwFnftKt9zp5eCyLqJTw==\r\n\r\n"
)
FRAME = b"\x81\x82\x00\x00\x00\x00{}"
STARTS = (
    PREFACE,
    b'{"preface":1,"ask":"status"}\n',
    INITIALIZE
    + b'{"method":"initialized"}\n'
    + b'{"id":2,"method":"thread/start","params":{"cwd":"/"}}\n'
    + b'{"id":3,"method":"thread/list","params":{"limit":2}}\n',
    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    UPGRADE + FRAME,
    PREFACE + UPGRADE + FRAME,
)


class Errors(logging.Handler):
    """Handler that keeps the log records of the server's own faults."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


class Server:
    """Server that listens at a place, with a client that it serves beside the one that sends the bytes."""

    def __init__(self, place: SocketPaths, errors: Callable[[], list[str]]) -> None:
        self.place, self.errors = place, errors
        self.other = dialled(place)
        answer_of(self.other)

    def answers_to(self, pieces: Sequence[bytes]) -> bytes:
        """Send the pieces on a new connection; return all bytes received until the server closes it."""
        heard = b""
        with dialled(self.place) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while some := connection.recv(1 << 16):
                    heard += some
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server closed it with unread input
        return heard

    def serves_others(self) -> bool:
        return bool(answer_of(self.other, HEALTH)["id"] == "health")


@contextmanager
def reception(folder: Path) -> Iterator[Server]:
    """Run a reception with an echo in a thread of its own."""
    errors = Errors()
    log = logging.getLogger("app_server")
    log.addHandler(errors)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(receiving(folder)) as (_, place),
    ):
        yield Server(place, lambda: errors.found)
    log.removeHandler(errors)


@contextmanager
def whole_server(folder: Path) -> Iterator[Server]:
    """Run a server in a process of its own."""
    with shared_homes(folder) as home:
        assert home.daemon("start")[0] == 0

        with open(home.place.log) as log:

            def errors() -> list[str]:
                """Return the log lines since the last call that report a fault."""
                said = log.read()
                return said.splitlines() if " ERROR " in said or "Traceback" in said else []

            yield Server(home.place, errors)


@pytest.fixture(scope="module", params=[reception, whole_server])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="t-") as folder, request.param(Path(folder)) as server:
        yield server
        server.other.close()


@thorough
@given(data=st.data(), said=mutated(STARTS) | st.binary(max_size=200))
@example(data=None, said=PREFACE)
@example(data=None, said=UPGRADE + FRAME)
@example(data=None, said=b'{"preface":1,"env":' + b"[" * 100_000 + b"\n")
def test_any_bytes_end_their_own_connection_only(
    server: Server, data: st.DataObject | None, said: bytes
) -> None:
    server.answers_to([said] if data is None else data.draw(chunks(said)))
    assert server.errors() == []
    assert server.serves_others()


@pytest.mark.parametrize(
    "said", STARTS, ids=["proxy", "daemon", "lines", "health", "WebSocket", "WebSocket over a proxy"]
)
def test_what_the_bytes_are_made_of_is_answered(server: Server, said: bytes) -> None:
    """Otherwise the mutations would test nothing."""
    assert server.answers_to([said])
