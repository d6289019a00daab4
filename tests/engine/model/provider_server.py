"""A loopback server that sends exactly the bytes of its scripts, and records the requests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum

import anyio
from anyio.abc import SocketStream

from app_server.cli.demo.scripted_model import (
    EVENT_STREAM,
    LoopbackServer,
    ReceivedRequest,
    response_head,
)


class Then(Enum):
    HANG_UP = "close the connection"
    HOLD = "send nothing more until the client leaves"


Step = bytes | Then


def head(status: int = 200, **headers: str) -> bytes:
    named = EVENT_STREAM | {name.replace("_", "-"): value for name, value in headers.items()}
    return response_head(status, {name: value for name, value in named.items() if value})


def whole(status: int, body: bytes, **headers: str) -> list[Step]:
    """Return a response with its length."""
    return [head(status, transfer_encoding="", content_length=str(len(body)), **headers), body]


class ProviderServer(LoopbackServer):
    """Server that answers each request with the next script. Without one it closes the connection."""

    def __init__(self) -> None:
        self.scripts: list[Sequence[Step]] = []
        self.asked: list[ReceivedRequest] = []
        self.url = ""

    def answer(self, *steps: Step) -> None:
        self.scripts.append(steps)

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        self.asked.append(request)
        if not self.scripts:
            return False
        for step in self.scripts.pop(0):
            match step:
                case bytes():
                    await stream.send(step)
                case Then.HANG_UP:
                    return False
                case Then.HOLD:
                    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                        await stream.receive()
        return True


@asynccontextmanager
async def provider_server() -> AsyncIterator[ProviderServer]:
    server = ProviderServer()
    async with server.serving() as server.url:
        yield server
