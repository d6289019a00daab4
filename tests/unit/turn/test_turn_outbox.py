"""What is emitted while more follows at once is stored together, and nobody is told before."""

import json
from pathlib import Path

import anyio
import anyio.lowlevel

from app_server.core.rollout.writer import RolloutWriter
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.outbox import YIELD_ROUNDS, Line, Outbox
from protocol.engine.events import ItemCompleted
from protocol.engine.items import AgentMessage
from protocol.events.notices import BackgroundEventEvent


class Disk(RolloutWriter):
    """Remembers what came in one write."""

    def __init__(self, path: Path) -> None:
        self.path, self.problem = path, None
        self.writes: list[list[str]] = []

    def append(self, items: object) -> None:
        assert isinstance(items, list)
        self.writes.append([_text(item) for item in items])


def _text(line: Line) -> str:
    return str(json.loads(line.to_json())["message"])


async def test_a_turn_goes_on_before_what_it_emitted_is_stored(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    outbox = Outbox(disk)
    emitter = TurnEmitter(outbox, "1", "turn", lambda: 0.0)
    received: list[str] = []

    async def subscribe() -> None:
        while events := await outbox.take():
            items = [each.event.item for each in events if isinstance(each.event, ItemCompleted)]
            received.extend(item.text for item in items if isinstance(item, AgentMessage))

    async with anyio.create_task_group() as group:
        group.start_soon(outbox.run)
        group.start_soon(subscribe)
        await anyio.wait_all_tasks_blocked()
        for number in range(YIELD_ROUNDS):
            emitter.show(AgentMessage(f"m{number}", (str(number),)))
            assert not disk.writes
            assert not received
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert received == list(map(str, range(YIELD_ROUNDS)))
        assert disk.writes == [received]
        emitter.show(AgentMessage("m", ("last",)))
        outbox.store()
        assert disk.writes[1:] == [["last"]]
        outbox.close()
    assert received[-1] == "last"


async def test_events_that_are_given_back_come_first_and_in_their_order(tmp_path: Path) -> None:
    outbox = Outbox(Disk(tmp_path))
    for number in range(4):
        outbox.emit("1", BackgroundEventEvent(message=str(number)))
    outbox.store()
    taken = await outbox.take()
    outbox.emit("1", BackgroundEventEvent(message="4"))
    outbox.store()
    outbox.give_back(taken[1:])
    events = [each.event for each in await outbox.take()]
    assert [event.message for event in events if isinstance(event, BackgroundEventEvent)] == [
        "1",
        "2",
        "3",
        "4",
    ]
