"""What is said while more follows at once is stored together, and nobody is told before."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app_server.core.rollout.writer import RolloutWriter
from app_server.core.turn.outbox import GIVE_WAY, Line, Outbox
from protocol.events.messages import AgentMessageEvent

pytestmark = pytest.mark.anyio


class Disk(RolloutWriter):
    """Remembers what came in one write."""

    def __init__(self, path: Path) -> None:
        self.path, self.problem = path, None
        self.writes: list[list[str]] = []

    def append(self, items: object) -> None:
        assert isinstance(items, list)
        self.writes.append([_text(item) for item in items])


def _text(line: Line) -> str:
    assert isinstance(line, AgentMessageEvent)
    return line.message


async def test_a_turn_goes_on_before_what_it_said_is_stored(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    outbox = Outbox(disk)
    told: list[str] = []

    async def listen() -> None:
        while events := await outbox.take():
            told.extend(_text(event.msg) for event in events)

    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        group.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        for number in range(GIVE_WAY):
            outbox.emit("1", AgentMessageEvent(message=str(number)))
            assert not disk.writes
            assert not told
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert told == list(map(str, range(GIVE_WAY)))
        assert disk.writes == [told]
        outbox.emit("1", AgentMessageEvent(message="last"))
        outbox.store()
        assert disk.writes[1:] == [["last"]]
        outbox.close()
    assert told[-1] == "last"


async def test_events_that_are_given_back_come_first_and_in_their_order(tmp_path: Path) -> None:
    outbox = Outbox(Disk(tmp_path))
    for number in range(4):
        outbox.emit("1", AgentMessageEvent(message=str(number)))
    outbox.store()
    taken = await outbox.take()
    outbox.emit("1", AgentMessageEvent(message="4"))
    outbox.store()
    outbox.give_back(taken[1:])
    assert [_text(event.msg) for event in await outbox.take()] == ["1", "2", "3", "4"]
