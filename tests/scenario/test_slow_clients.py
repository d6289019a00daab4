"""Limits of a server with several clients: how many there may be, and what one that does not read costs the others."""

from __future__ import annotations

import json

import anyio

from app_server.server import ClientPlace
from app_server.transport.memory import memory_pair
from protocol.structs import Json
from tests.support.client import Client, MemoryWire
from tests.support.scripted_model import Hold, begins_to_say, reply, says, word
from tests.support.thread_client import ended, start, turn
from tests.support.world import MakeWorld, World


async def join(client: Client, thread: str) -> None:
    await client.call("thread/resume", {"threadId": thread})


async def refused(w: World) -> list[Json]:
    """What a client is sent that is not served."""
    assert w.in_process is not None
    server_end, client_end = memory_pair()
    place = ClientPlace(home=w.home, cwd=w.workspace, environment=w.environment, shared=True)
    await w.in_process.serve(server_end, place)
    server_end.close()
    return [json.loads(line) async for line in MemoryWire(client_end).lines()]


async def test_one_client_too_many_is_told_so_and_not_served(world: MakeWorld) -> None:
    async with world(environment={"APP_SERVER_MAX_CLIENTS": "2"}) as w:
        async with w.another():
            (line,) = await refused(w)
            assert (line["id"], line["error"]["code"]) == (None, -32001)
            assert line["error"]["data"] == {"kind": "overloaded", "retryable": True}
            assert "2 clients" in line["error"]["message"]
        async with w.another() as other:  # there is room again
            await other.call("thread/loaded/list", {})


async def test_a_client_that_does_not_read_its_answers_holds_up_nobody_elses_requests(
    world: MakeWorld,
) -> None:
    """What follows the answer of one client, who does not read, and a request of another about the same thread."""
    hold = Hold()
    async with (
        world(reply(begins_to_say(), word("one"), hold, says("one"))) as w,
        w.another(buffered=1) as slow,
    ):
        assert isinstance(slow.wire, MemoryWire)
        thread = await start(w.client)
        begun = await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        slow.wire.stop_reading()
        joins = [await slow.send("thread/resume", {"threadId": thread}) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": begun})
        assert (await ended(w.client, begun))["status"] == "interrupted"
        slow.wire.read_on()
        for id in joins:
            assert "result" in await slow.answer_to(id)
