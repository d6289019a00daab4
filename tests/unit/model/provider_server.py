"""A loopback server that sends exactly the bytes of its scripts, and records the requests."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import SocketStream

from app_server.demo import scripted_model
from app_server.demo.scripted_model import (
    EVENT_STREAM,
    LAST_CHUNK,
    LoopbackServer,
    ReceivedRequest,
    response_head,
)


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


def head(status: int = 200, **headers: str) -> Bytes:
    named = EVENT_STREAM | {name.replace("_", "-"): value for name, value in headers.items()}
    return Bytes(response_head(status, {name: value for name, value in named.items() if value}))


def chunk(data: bytes) -> Bytes:
    return Bytes(scripted_model.chunk(data))


END = Bytes(LAST_CHUNK)


def whole(status: int, body: bytes, **headers: str) -> list[Step]:
    """A response with its length."""
    return [head(status, transfer_encoding="", content_length=str(len(body)), **headers), Bytes(body)]


class ProviderServer(LoopbackServer):
    """Answers each request with the next script. Without one it hangs up."""

    def __init__(self) -> None:
        self.scripts: list[Sequence[Step]] = []
        self.asked: list[ReceivedRequest] = []
        self.url = ""
        self._stack = AsyncExitStack()
        self.changed: Callable[[], None] = lambda: None
        self.gone = anyio.Event()
        """Set when a client has closed its connection."""

    def answer(self, *steps: Step) -> None:
        self.scripts.append(steps)

    async def __aenter__(self) -> Self:
        self.url = await self._stack.enter_async_context(self.serving())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def serve_connection(self, stream: SocketStream) -> None:
        await super().serve_connection(stream)
        self.gone.set()

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        self.asked.append(request)
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
