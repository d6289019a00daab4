"""Disconnection of a client that shares a server, and the messages that it receives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from app_server.engine.support.limits import Limits
from app_server.server.client_connection import LEAVING_SECONDS, LOOK_SECONDS, UNREAD_SECONDS, ServedClient
from app_server.server.transport.memory import MemoryTransport, memory_pair

LIMITS = Limits(unread_bytes=1000, behind_bytes=10_000)


class Place:
    """Client that reads when the test lets it."""

    def __init__(self, client: ServedClient, end: MemoryTransport) -> None:
        self.client, self._end = client, end
        self.now = 0.0
        self.left = anyio.Event()

    async def read(self) -> list[bytes]:
        """Return all lines until the end."""
        lines: list[bytes] = []
        async for batch in self._end.lines():
            lines += [line for line in batch if isinstance(line, bytes)]
        return lines


@asynccontextmanager
async def place(*, shared: bool = True, acp: bool = False) -> AsyncIterator[Place]:
    async with anyio.create_task_group() as group:
        server, end = memory_pair(buffered=0)
        client = ServedClient(server, LIMITS, lambda: here.now, lambda: None, acp=acp, shared=shared)
        here = Place(client, end)

        async def serve() -> None:
            async with anyio.create_task_group() as connection:
                connection.start_soon(client.write, connection)
                with client.scope:
                    await anyio.sleep_forever()
                await client.finish()
                connection.cancel_scope.cancel()
            server.close()
            here.left.set()

        group.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        yield here
        group.cancel_scope.cancel()


def told(line: bytes) -> tuple[str, str]:
    message = json.loads(line)
    assert message["params"]["threadId"] is None
    return message["method"], message["params"]["message"]


async def test_what_waits_behind_the_message_in_hand_is_dropped_and_the_last_message_says_why() -> None:
    async with place() as p:
        p.client.outgoing.send(b'"in hand"')
        await anyio.wait_all_tasks_blocked()
        for n in range(120):
            p.client.outgoing.send(b'"%0100d"' % n)
        assert p.client.notice is not None
        assert p.client.outgoing.unread < 1000
        first, last = await p.read()
        assert first == b'"in hand"'
        assert told(last) == ("warning", "disconnected: 0 MB unread; resume to go on")


async def test_editors_are_told_in_a_way_of_their_protocol() -> None:
    async with place(acp=True) as p:
        p.client.disconnect("17 MB unread")
        (line,) = await p.read()
        assert json.loads(line)["jsonrpc"] == "2.0"
        assert told(line) == ("_app-server/warning", "disconnected: 17 MB unread; resume to go on")


async def test_answers_do_not_count_however_large_they_are() -> None:
    async with place() as p:
        p.client.outgoing.send(b"in hand")
        await anyio.wait_all_tasks_blocked()
        for n in range(10):
            p.client.outgoing.respond(n, b'"%s"' % (b"x" * 50_000))
        p.client.outgoing.send(b"x" * 5_000)
        assert p.client.notice is None


async def test_one_event_is_never_too_much_where_nothing_else_waits() -> None:
    async with place() as p:
        p.client.outgoing.send(b"x" * 20_000)
        p.client.outgoing.send(b"x" * 20_000, further=True)
        await anyio.wait_all_tasks_blocked()  # the writer has taken it
        p.client.outgoing.send(b"x" * 5_000)
        assert p.client.notice is None


async def test_one_that_reads_nothing_for_ten_minutes_is_disconnected() -> None:
    async with place() as p:
        p.client.outgoing.send(b'"in hand"')
        await anyio.wait_all_tasks_blocked()
        p.now = UNREAD_SECONDS - LOOK_SECONDS
        p.client.look()
        assert p.client.notice is None
        p.now = UNREAD_SECONDS
        p.client.look()
        _, last = await p.read()
        assert told(last)[1] == "disconnected: nothing read for 10 minutes; resume to go on"


async def test_one_that_reads_now_and_then_stays_connected() -> None:
    async with place() as p, anyio.create_task_group() as reading:
        reading.start_soon(p.read)
        for _ in range(3):
            p.client.outgoing.send(b"text")
            await anyio.wait_all_tasks_blocked()
            p.now += UNREAD_SECONDS
            p.client.look()
        assert p.client.notice is None
        reading.cancel_scope.cancel()


async def test_one_that_has_its_server_for_itself_may_take_its_time() -> None:
    async with place(shared=False) as p:
        for _ in range(30):
            p.client.outgoing.send(b"x" * 1000)
        p.now = UNREAD_SECONDS * 2
        p.client.look()
        assert p.client.notice is None


async def test_one_that_does_not_even_read_why_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LEAVING_SECONDS == 60
    monkeypatch.setattr("app_server.server.client_connection.LEAVING_SECONDS", 0)
    async with place() as p:
        p.client.outgoing.send(b"in hand")
        await anyio.wait_all_tasks_blocked()
        p.client.disconnect("17 MB unread")
        await p.left.wait()
        assert await p.read() == []
