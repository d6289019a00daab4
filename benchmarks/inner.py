"""The server and a client in this process, over the transport in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from app_server.server.composition import ServerSettings, serve
from app_server.server.transport.memory import MemoryTransport, memory_pair
from app_server_protocol.encoding import Json
from benchmarks.place import Place


class InnerClient:
    """Minimal client that knows when a turn is over. It does one thing at a time."""

    def __init__(self, end: MemoryTransport, place: Place) -> None:
        self._end, self._place = end, place
        self._batches = end.lines()
        self._id = 0

    async def open(self) -> str:
        made = await self.ask("newConversation", {"cwd": str(self._place.workspace)})
        conversation = str(made["conversationId"])
        await self.ask("addConversationListener", {"conversationId": conversation})
        return conversation

    async def turn(self, conversation: str) -> None:
        items = [{"type": "text", "data": {"text": "hi"}}]
        asked = {"conversationId": conversation, "items": items}
        await self._send_until("sendUserMessage", asked, b'{"method":"codex/event/task_complete"')

    async def ask(self, method: str, params: Json) -> Json:
        answer = await self._send_until(method, params, b'{"id":%d,' % (self._id + 1))
        return json.loads(answer)["result"]

    async def _send_until(self, method: str, params: Json, awaited: bytes) -> bytes:
        self._id += 1
        request = {"id": self._id, "method": method, "params": params}
        await self._end.write(json.dumps(request).encode() + b"\n")
        async for lines in self._batches:
            for line in lines:
                assert isinstance(line, bytes)
                assert b'"codex/event/error"' not in line[:100], line
                if line.startswith(awaited):
                    return line
        raise EOFError(method)


@asynccontextmanager
async def inner_server(place: Place, model_url: str) -> AsyncIterator[InnerClient]:
    place.configure(model_url, "danger-full-access")
    server_end, client_end = memory_pair()
    settings = ServerSettings(home=place.home, cwd=place.workspace, environment=place.environment)
    async with anyio.create_task_group() as group:
        group.start_soon(serve, server_end, settings, name="the server")
        client = InnerClient(client_end, place)
        await client.ask("initialize", {"clientInfo": {"name": "bench", "version": "1"}})
        yield client
        client_end.close()
