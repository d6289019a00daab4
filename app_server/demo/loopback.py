"""An HTTP server on loopback for scripted peers: it reads requests, and a subclass writes the responses.

Owns the sockets and the framing of HTTP. It knows nothing of what is asked or answered.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from protocol.base import Json
from protocol.records import dataclass

LARGEST_HEAD = 1 << 16
LARGEST_BODY = 1 << 26

EVENT_STREAM = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    line: str
    """`POST /v1/responses HTTP/1.1`"""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Which connection it came on, counted from 1."""

    @property
    def method(self) -> str:
        return self.line.split(" ", 2)[0]

    @property
    def path(self) -> str:
        return self.line.split(" ", 2)[1]


class LoopbackServer(ABC):
    """`async with server.serving() as base_url` serves until the block is left."""

    _connections = 0

    @abstractmethod
    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        """Write the response. False: the connection ends here."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, self.serve_connection, name="loopback server")
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
            group.cancel_scope.cancel()

    async def serve_connection(self, stream: SocketStream) -> None:
        """Requests of one connection until the other side leaves, in whatever way."""
        self._connections += 1
        connection = self._connections
        async with stream:
            received = BufferedByteReceiveStream(stream)
            try:
                while await self.respond(await _read_request(received, connection), stream):
                    pass
            except (
                anyio.EndOfStream,
                anyio.IncompleteRead,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
            ):
                return


async def _read_request(received: BufferedByteReceiveStream, connection: int) -> ReceivedRequest:
    head = (await received.receive_until(b"\r\n\r\n", LARGEST_HEAD)).decode("latin-1")
    line, *rest = head.split("\r\n")
    pairs = (field.partition(":") for field in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = min(int(headers.get("content-length", "0")), LARGEST_BODY)
    body = await received.receive_exactly(length) if length else b""
    return ReceivedRequest(line, headers, body, connection)


def response_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode()


def whole_response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A response with its length; JSON unless the headers say otherwise."""
    named = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    return response_head(status, named) + body


def chunk(data: bytes) -> bytes:
    """A piece of a response that is sent in pieces."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event_chunk(event: Json) -> bytes:
    """A server-sent event in a piece of its own."""
    return chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
