"""What leaves in one piece, and what is not held back."""

import socket
import ssl
from typing import Any

import httpcore

from app_server.core.http.connections import AT_ONCE_BYTES, GatheringStream


class Wire(httpcore.AsyncNetworkStream):
    """The other side; `broken` takes nothing."""

    def __init__(self, *, broken: bool = False, connection: socket.socket | None = None) -> None:
        self.written: list[tuple[bytes, float | None]] = []
        self.broken, self.connection = broken, connection
        self.closed = self.encrypted = False

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self.broken:
            raise httpcore.WriteError("nobody reads")
        self.written.append((buffer, timeout))

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return b"said"[:max_bytes]

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        self.encrypted = True
        return self

    async def aclose(self) -> None:
        self.closed = True

    def get_extra_info(self, info: str) -> Any:
        return self.connection if info == "socket" else None


async def test_head_and_body_leave_together_when_an_answer_is_waited_for() -> None:
    wire = Wire()
    stream = GatheringStream(wire)
    await stream.write(b"POST / HTTP/1.1\r\n\r\n", 3)
    await stream.write(b"{}", 3)
    await stream.write(b"", 3)
    assert wire.written == []
    assert await stream.read(100, 7) == b"said"
    assert wire.written == [(b"POST / HTTP/1.1\r\n\r\n{}", 7)]
    await stream.read(100, 7)
    assert len(wire.written) == 1


async def test_a_large_write_is_not_buffered() -> None:
    wire = Wire()
    stream = GatheringStream(wire)
    await stream.write(b"head", 1)
    await stream.write(bytes(AT_ONCE_BYTES), 2)
    assert wire.written == [(b"head" + bytes(AT_ONCE_BYTES), 2)]


async def test_a_response_of_a_server_that_reads_no_more_is_received() -> None:
    stream = GatheringStream(Wire(broken=True))
    await stream.write(b"head")
    assert await stream.read(100) == b"said"


async def test_encryption_begins_after_the_clear_text() -> None:
    wire = Wire()
    stream = GatheringStream(wire)
    await stream.write(b"CONNECT")
    encrypted = await stream.start_tls(ssl.create_default_context())
    assert isinstance(encrypted, GatheringStream)
    assert wire.encrypted
    assert [data for data, _ in wire.written] == [b"CONNECT"]


async def test_a_connection_is_readable_when_something_came_or_it_ended() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        stream = GatheringStream(Wire(connection=ours))
        assert stream.get_extra_info("is_readable") is False
        theirs.close()
        assert stream.get_extra_info("is_readable") is True
    assert stream.get_extra_info("is_readable") is True
    await stream.aclose()
