"""A scripted server for the client library: the test decides its lines, its silence, its end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from app_server.server.transport.memory import MemoryTransport, memory_pair
from app_server_protocol.encoding import Json
from app_server_protocol.framing import Oversized

INITIALIZED: Json = {
    "userAgent": "peer/1",
    "codexHome": "/home",
    "platformFamily": "unix",
    "platformOs": "linux",
}


def thread(id: str = "t1") -> Json:
    return {
        "id": id,
        "sessionId": id,
        "preview": "",
        "ephemeral": False,
        "projectId": None,
        "modelProvider": "p",
        "createdAt": 1,
        "updatedAt": 1,
        "status": {"type": "idle"},
        "cwd": "/w",
        "cliVersion": "1",
        "source": "appServer",
        "turns": [],
    }


def opened(id: str = "t1") -> Json:
    return {
        "thread": thread(id),
        "model": "m",
        "modelProvider": "p",
        "cwd": "/w",
        "approvalPolicy": "never",
        "approvalsReviewer": "user",
        "sandbox": {"type": "readOnly"},
    }


def turn(id: str = "u1", status: str = "inProgress") -> Json:
    return {"id": id, "items": [], "status": status}


class ScriptedPeer:
    """Connector to itself. It answers by method; a request without an answer is left open."""

    def __init__(self, *, buffered: float = 16) -> None:
        self.received: list[Json] = []
        self.answers: dict[str, Callable[[Json], Json]] = {
            "initialize": lambda _: INITIALIZED,
            "thread/start": lambda _: opened(),
            "turn/start": lambda _: {"turn": turn()},
            "turn/interrupt": lambda _: {},
        }
        self.cause = "the peer has ended"
        self._end, self._client_end = memory_pair(buffered=buffered)
        self._arrived = anyio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PeerLink]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._serve)
            yield PeerLink(self._client_end, self)
            group.cancel_scope.cancel()

    async def _serve(self) -> None:
        async for lines in self._end.lines():
            for line in lines:
                assert isinstance(line, bytes)
                message = json.loads(line)
                self.received.append(message)
                self._arrived.set()
                self._arrived = anyio.Event()
                if (answer := self.answers.get(message.get("method", ""))) is not None and "id" in message:
                    await self.send({"id": message["id"], "result": answer(message.get("params"))})
        self.leave()

    async def send(self, *messages: Json) -> None:
        await self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def send_bytes(self, data: bytes) -> None:
        await self._end.write(data)

    async def notify(self, method: str, **params: Json) -> None:
        await self.send({"method": method, "params": params})

    def leave(self) -> None:
        """End without a message."""
        self._end.close()

    async def until(self, matches: Callable[[Json], bool]) -> Json:
        """Wait for the first message from the client that matches."""
        with anyio.fail_after(20):
            while True:
                for message in self.received:
                    if matches(message):
                        return message
                await self._arrived.wait()

    async def answer_to(self, id: int | str) -> Json:
        return await self.until(lambda message: message.get("id") == id and "method" not in message)

    async def request(self, method: str) -> Json:
        return await self.until(lambda message: message.get("method") == method)


class PeerLink:
    def __init__(self, end: MemoryTransport, peer: ScriptedPeer) -> None:
        self._end, self._peer = end, peer

    def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        return self._end.lines()

    async def write(self, data: bytes) -> None:
        await self._end.write(data)

    async def close(self) -> None:
        self._end.close()

    async def cause_of_end(self) -> str:
        return self._peer.cause
