"""Requests to the client: their ids, and which response belongs to which."""

import json

import anyio
import pytest

from app_server.rpc.outgoing import ClientReply, Outgoing, PendingRequests, describe


async def test_ids_count_from_zero() -> None:
    pending = PendingRequests()
    assert [pending.register().id for _ in range(3)] == [0, 1, 2]
    assert len(pending) == 3


async def test_a_response_resolves_its_own_request_once() -> None:
    pending = PendingRequests()
    first, second = pending.register(), pending.register()
    assert pending.resolve(second.id, ClientReply(2))
    assert not pending.resolve(second.id, ClientReply(3))
    assert (await second.wait()).result == 2
    assert len(pending) == 1
    assert pending.resolve(first.id, ClientReply(1))


@pytest.mark.parametrize("id", ["0", 7, -1])
async def test_a_response_with_another_id_resolves_nothing(id: int | str) -> None:
    pending = PendingRequests()
    pending.register()
    assert not pending.resolve(id, ClientReply())
    assert len(pending) == 1


async def test_a_forgotten_request_is_no_longer_pending() -> None:
    pending = PendingRequests()
    kept, forgotten = pending.register(), pending.register()
    pending.forget(forgotten)
    assert not pending.resolve(forgotten.id, ClientReply())
    assert pending.resolve(kept.id, ClientReply())


async def test_a_request_is_sent_with_its_id_and_parameters() -> None:
    sent: list[bytes] = []

    async def write(data: bytes) -> None:
        sent.append(data)

    outgoing = Outgoing(write, 1000)
    replies: list[ClientReply] = []

    async def request() -> None:
        replies.append(await outgoing.request("m", b'{"a": 1}'))

    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        group.start_soon(request)
        await anyio.wait_all_tasks_blocked()
        assert json.loads(b"".join(sent)) == {"id": 0, "method": "m", "params": {"a": 1}}
        assert outgoing.pending.resolve(0, ClientReply("yes"))
        await outgoing.finish()
    assert replies == [ClientReply("yes")]
    assert len(outgoing.pending) == 0


def test_a_long_response_is_shortened_for_the_log() -> None:
    assert describe("x" * 198) == repr("x" * 198)
    assert describe("x" * 199) == "'" + "x" * 199 + "…"
