"""One queue, one writer: order, back-pressure for producers, and the effect of an end on waiting tasks."""

import json

import anyio
import pytest

from app_server.server.rpc.outgoing import LARGE_BATCH, OutboundQueue
from app_server_protocol.framing import TransportClosed


class Client:
    """Client that reads when the test lets it."""

    def __init__(self) -> None:
        self.got = b""
        self.reads = anyio.Event()
        self.gone = False

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        if self.gone:
            raise TransportClosed
        self.got += data


async def test_lines_leave_whole_and_in_order() -> None:
    client = Client()
    client.reads.set()
    outgoing = OutboundQueue(client.write, 100)
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        for n in range(1000):
            outgoing.send(b"%d" % n)
            if n % 7 == 0:
                await anyio.lowlevel.checkpoint()
        await outgoing.finish()
    assert client.got == b"".join(b"%d\n" % n for n in range(1000))


async def test_a_producer_is_held_back_until_the_client_reads() -> None:
    client, produced = Client(), 0
    outgoing = OutboundQueue(client.write, 100)

    async def produce() -> None:
        nonlocal produced
        for _ in range(100):
            await outgoing.wait_for_capacity()
            outgoing.send(b"x" * 30)
            produced += 1

    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        group.start_soon(produce)
        await anyio.wait_all_tasks_blocked()
        assert outgoing.congested
        assert produced == 4  # the line that crosses the limit is the last
        client.reads.set()
        await anyio.wait_all_tasks_blocked()
        assert produced == 100
        await outgoing.finish()


async def test_a_producer_without_end_keeps_nobody_else_waiting() -> None:
    """Each producer gets its turn, whichever is quicker when the client has read."""
    client = Client()
    outgoing = OutboundQueue(client.write, 100)
    order: list[str] = []

    async def produce(name: str, rounds: int) -> None:
        for _ in range(rounds):
            await outgoing.wait_for_capacity()
            outgoing.send(b"x" * 200)
            order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        group.start_soon(produce, "greedy", 50)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(produce, "reader", 5)
        group.start_soon(produce, "other", 5)
        await anyio.wait_all_tasks_blocked()
        client.reads.set()
        await anyio.wait_all_tasks_blocked()
        await outgoing.finish()
    assert order[:16] == ["greedy", *["greedy", "reader", "other"] * 5]
    assert len(order) == 60


async def test_a_cancelled_or_closed_wait_blocks_nobody() -> None:
    client, went = Client(), []
    outgoing = OutboundQueue(client.write, 100)

    async def wait(name: str) -> None:
        await outgoing.wait_for_capacity()
        went.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        outgoing.send(b"x" * 200)
        async with anyio.create_task_group() as first:
            first.start_soon(wait, "first")
            await anyio.wait_all_tasks_blocked()
            group.start_soon(wait, "second")
            group.start_soon(wait, "third")
            await anyio.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
        assert went == []
        outgoing.close()
        await anyio.wait_all_tasks_blocked()
        assert went == ["second", "third"]
        client.reads.set()


async def test_a_response_may_be_the_last_line_of_its_write() -> None:
    """Also where more is queued in the same step: clients learn ids from it that what follows has."""
    writes: list[bytes] = []

    async def write(data: bytes) -> None:
        writes.append(data)

    outgoing = OutboundQueue(write, 100)
    outgoing.send(b"before")
    outgoing.respond(1, b"{}", ends_write=True)
    outgoing.send(b"after")
    outgoing.respond(2, b"{}")
    outgoing.send(b"last")
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        await outgoing.finish()
    assert writes == [b'before\n{"id":1,"result":{}}\n', b'after\n{"id":2,"result":{}}\nlast\n']


async def test_a_client_that_is_gone_frees_everybody_who_waits() -> None:
    client = Client()
    client.gone = True
    outgoing = OutboundQueue(client.write, 10)
    answers = []

    async def ask() -> None:
        answers.append(await outgoing.request("question", b"{}"))

    async def serve() -> None:
        with pytest.raises(TransportClosed):
            await outgoing.write_queued()
        outgoing.close()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        group.start_soon(ask)
        outgoing.send(b"x" * 100)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(outgoing.wait_for_capacity)
        client.reads.set()
    assert [answer.error for answer in answers] == ["the connection was closed"]
    outgoing.send(b"nobody reads this")
    assert client.got == b""


class SlowClient:
    """Client that accepts one write at a time, each when the test lets it."""

    def __init__(self) -> None:
        self.takes = anyio.Semaphore(0)

    async def write(self, data: bytes) -> None:
        await self.takes.acquire()


async def test_what_waits_is_counted_to_the_byte_also_while_a_write_is_under_way() -> None:
    client = SlowClient()
    outgoing = OutboundQueue(client.write, 100)

    def congested() -> bool:
        return outgoing.congested

    outgoing.send(b"x" * 99)  # with its line end exactly what may wait
    assert not congested()
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        await anyio.wait_all_tasks_blocked()
        outgoing.send(b"y" * 49)
        assert congested()
        client.takes.release()
        await anyio.wait_all_tasks_blocked()  # the first line is written, the second is on its way
        assert not congested()
        outgoing.send(b"z" * 49)
        assert not congested()
        outgoing.send(b"")
        assert congested()
        client.takes.release()
        client.takes.release()
        await anyio.wait_all_tasks_blocked()
        assert not congested()
        await outgoing.finish()


async def test_messages_name_their_version_where_clients_require_it() -> None:
    client = Client()
    client.reads.set()
    outgoing = OutboundQueue(client.write, 100, jsonrpc=True)
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        outgoing.notify("m", b"{}")
        await outgoing.finish()
    assert json.loads(client.got) == {"jsonrpc": "2.0", "method": "m", "params": {}}


async def test_a_large_batch_is_followed_by_a_call_once_the_queue_is_empty() -> None:
    client, seen = Client(), list[int]()
    client.reads.set()
    outgoing = OutboundQueue(client.write, 100, after_large_batch=lambda: seen.append(len(client.got)))
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        outgoing.send(b"x" * LARGE_BATCH)
        await anyio.wait_all_tasks_blocked()
        assert seen == [LARGE_BATCH + 1]
        outgoing.send(b"small")
        await outgoing.finish()
    assert seen == [LARGE_BATCH + 1]
