"""Long incomplete messages: how many a server keeps, which connections wait, and the message if the wait was in
vain.
"""

import anyio
import pytest

from app_server.server.transport.socket_streams import (
    ALL_BYTES,
    PATIENCE,
    SHORT_BYTES,
    LongMessageLimiter,
    LongMessageSlot,
    StreamTransport,
)
from app_server_protocol.framing import LineDecoder, Oversized
from tests.support.byte_streams import MemoryByteStream, byte_pair
from tests.support.virtual_time import in_virtual_time

LIMIT = ALL_BYTES // 2
LONG = b"x" * (SHORT_BYTES + 1)


async def is_there_room(slot: LongMessageSlot) -> bool:
    return await slot.is_enough_for(len(LONG))


@pytest.mark.parametrize(("limit", "places"), [(64 << 20, 4), (1 << 20, 256), (1 << 40, 1)])
def test_as_many_are_kept_as_have_room_together(limit: int, places: int) -> None:
    async def play() -> None:
        messages = LongMessageLimiter(limit)
        for _ in range(places):
            assert await is_there_room(messages.connection())
        assert anyio.current_time() == 0
        assert not await is_there_room(messages.connection())
        assert anyio.current_time() == PATIENCE

    in_virtual_time(play)


def test_who_waits_has_the_place_of_who_ends_or_leaves_in_the_order_of_their_coming() -> None:
    async def play() -> None:
        messages, got = LongMessageLimiter(ALL_BYTES), []
        holder = messages.connection()
        assert await is_there_room(holder)
        rooms = {name: messages.connection() for name in ("first", "second")}

        async def wait(name: str) -> None:
            assert await is_there_room(rooms[name])
            got.append((name, anyio.current_time()))

        async with anyio.create_task_group() as group:
            for name in rooms:
                group.start_soon(wait, name)
                await anyio.sleep(1)
            assert await messages.connection().is_enough_for(SHORT_BYTES)  # short ones do not wait
            assert await is_there_room(holder)  # it has a place already
            assert await holder.is_enough_for(0)  # its message has ended
            await anyio.sleep(1)
            rooms["first"].leave()
            rooms["first"].leave()  # it releases no more than it had
        assert got == [("first", 2), ("second", 3)]
        assert not await is_there_room(messages.connection())

    in_virtual_time(play)


def test_who_gives_up_waiting_takes_no_place_along() -> None:
    async def play() -> None:
        messages = LongMessageLimiter(ALL_BYTES)
        holder, gives_up = messages.connection(), messages.connection()
        assert await is_there_room(holder)
        with anyio.move_on_after(1):
            await is_there_room(gives_up)
        gives_up.leave()
        holder.leave()
        assert await is_there_room(messages.connection())
        assert anyio.current_time() == 1

    in_virtual_time(play)


async def test_one_that_has_its_server_for_itself_has_all_the_room() -> None:
    slot = LongMessageSlot()
    assert await slot.is_enough_for(ALL_BYTES * 2)
    slot.leave()


def test_a_line_that_is_dropped_is_told_of_at_its_end_and_the_next_is_kept() -> None:
    decoder = LineDecoder(limit=10)
    assert decoder.feed(b"abc") == []
    decoder.drop()
    assert decoder.held == 0
    assert decoder.feed(b"def\ngh") == [Oversized(6, crowded=True)]
    assert decoder.held == 2
    decoder.drop()
    assert decoder.feed(b"x" * 9 + b"\n") == [Oversized(11)]  # it could not be sent again


def lines(stream: MemoryByteStream, slot: LongMessageSlot) -> StreamTransport:
    return StreamTransport(stream, LIMIT, slot=slot)


async def read(transport: StreamTransport) -> list[bytes | Oversized]:
    return [line async for batch in transport.lines() for line in batch]


def test_a_long_line_beside_too_many_is_dropped_and_what_follows_it_is_read() -> None:
    async def play() -> None:
        messages = LongMessageLimiter(LIMIT)
        pairs = [byte_pair() for _ in range(3)]
        async with anyio.create_task_group() as group:
            heard: list[list[bytes | Oversized]] = [[] for _ in pairs]

            async def hear(number: int) -> None:
                heard[number] += await read(lines(pairs[number][0], messages.connection()))

            for number, (_, client) in enumerate(pairs):
                group.start_soon(hear, number)
                await client.send(LONG)
                await anyio.sleep(PATIENCE + 1)
            for _, client in pairs:
                await client.send(b"y\nnext\n")
                await client.aclose()
        whole = [LONG + b"y", b"next"]
        assert heard == [whole, whole, [Oversized(len(LONG) + 1, crowded=True), b"next"]]

    in_virtual_time(play)
