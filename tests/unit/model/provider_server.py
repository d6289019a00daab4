"""A provider on loopback that sends exactly the bytes it is told to, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import SocketAttribute, SocketStream


@dataclass(frozen=True, slots=True)
class Bytes:
    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Send nothing more until the event is set."""

    event: anyio.Event


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection."""


Step = Bytes | Wait | HangUp


@dataclass(frozen=True, slots=True)
class Asked:
    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


def head(status: int = 200, **headers: str) -> Bytes:
    named = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    return Bytes(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())


def chunk(data: bytes) -> Bytes:
    return Bytes(b"%x\r\n%b\r\n" % (len(data), data))


END = Bytes(b"0\r\n\r\n")


def whole(status: int, body: bytes, **headers: str) -> list[Step]:
    """A response with its length."""
    return [head(status, transfer_encoding="", content_length=str(len(body)), **headers), Bytes(body)]


class ProviderServer:
    """Answers each request with the next script. Without one it hangs up."""

    def __init__(self) -> None:
        self.scripts: list[Sequence[Step]] = []
        self.asked: list[Asked] = []
        self.port = 0
        self._connections = 0
        self._stack = AsyncExitStack()
        self.changed: Callable[[], None] = lambda: None
        self.gone = anyio.Event()
        """Set when a client has closed its connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, *steps: Step) -> None:
        self.scripts.append(steps)

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(SocketAttribute.local_port)
        await self._stack.enter_async_context(listener)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        group.start_soon(listener.serve, self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _serve(self, stream: SocketStream) -> None:
        self._connections += 1
        connection = self._connections
        async with stream:
            try:
                while await self._exchange(stream, connection):
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        self.gone.set()

    async def _exchange(self, stream: SocketStream, connection: int) -> bool:
        self.asked.append(await _read(stream, connection))
        self.changed()
        if not self.scripts:
            return False
        for step in self.scripts.pop(0):
            match step:
                case Bytes():
                    await stream.send(step.data)
                case Wait():
                    await _until(step.event, stream)
                case HangUp():
                    return False
        return True


async def _until(event: anyio.Event, stream: SocketStream) -> None:
    """Wait for the event, or for the client to leave."""
    async with anyio.create_task_group() as group:

        async def left() -> None:
            try:
                await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
            group.cancel_scope.cancel()

        group.start_soon(left)
        await event.wait()
        group.cancel_scope.cancel()


async def _read(stream: SocketStream, connection: int) -> Asked:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    top, _, body = data.partition(b"\r\n\r\n")
    line, *rest = top.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (entry.partition(":") for entry in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    return Asked(line, headers, body, connection)


@dataclass(slots=True)
class Gate:
    """Tells when a server was asked for the n-th time."""

    server: ProviderServer
    event: anyio.Event = field(default_factory=anyio.Event)

    def at(self, count: int) -> anyio.Event:
        def check() -> None:
            if len(self.server.asked) >= count:
                self.event.set()

        self.server.changed = check
        return self.event
