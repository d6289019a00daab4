"""Which conversations are ended for being idle, and when."""

from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from anyio import wait_all_tasks_blocked

from app_server.conversations.unloading import (
    IDLE_SECONDS,
    LOOK_SECONDS,
    MOST_IDLE,
    NO_ROOM,
    IdleUnloader,
)


@dataclass
class Conversation:
    id: str
    idle: bool = True
    unloads: bool = True
    ended: bool = False
    ending: bool = False
    may_end: anyio.Event = field(default_factory=anyio.Event)

    async def shut_down(self) -> None:
        self.idle, self.ending = False, True
        await self.may_end.wait()
        self.ended = True


@dataclass
class Open:
    conversations: list[Conversation]
    ending_is_slow: bool = False
    now: float = 0.0
    closed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unloader = IdleUnloader(cast(Any, self), lambda: self.now, self.closed.append)

    def all(self) -> list[Conversation]:
        for each in self.conversations:
            if not self.ending_is_slow:
                each.may_end.set()
        return [each for each in self.conversations if not each.ended]

    async def after(self, seconds: float) -> list[str]:
        """What is closed by now, with a look a minute."""
        end = self.now + seconds
        while self.now < end:
            self.now += LOOK_SECONDS
            await self.unloader.look()
        return self.closed


async def test_an_idle_one_is_ended_after_half_an_hour() -> None:
    place = Open([Conversation("a")])
    assert await place.after(IDLE_SECONDS) == []
    assert await place.after(2 * LOOK_SECONDS) == ["a"]
    assert await place.after(IDLE_SECONDS * 2) == ["a"]


async def test_the_time_begins_anew_where_something_happened() -> None:
    one = Conversation("a")
    place = Open([one])
    await place.after(IDLE_SECONDS - LOOK_SECONDS)
    one.idle = False
    await place.after(LOOK_SECONDS)
    one.idle = True
    assert await place.after(IDLE_SECONDS) == []
    assert await place.after(2 * LOOK_SECONDS) == ["a"]


async def test_only_so_many_stay_idle() -> None:
    place = Open([Conversation(str(n)) for n in range(MOST_IDLE)])
    assert await place.after(LOOK_SECONDS) == []
    place.conversations += [Conversation("more"), Conversation("busy", idle=False)]
    assert await place.after(LOOK_SECONDS) == ["0"]


async def test_none_is_opened_while_too_many_wait_for_their_end() -> None:
    place = Open([Conversation(str(n)) for n in range(NO_ROOM)], ending_is_slow=True)
    async with anyio.create_task_group() as opening:
        opening.start_soon(place.unloader.wait_for_room)
        await wait_all_tasks_blocked()
        ending = [each for each in place.conversations if each.ending]
        assert len(ending) == NO_ROOM - MOST_IDLE  # all at once, and their end is waited for
        for each in ending:
            each.may_end.set()
    assert len(place.all()) == MOST_IDLE
    await place.unloader.wait_for_room()
    assert len(place.all()) == MOST_IDLE


async def test_others_stay() -> None:
    busy, followed = Conversation("a", idle=False), Conversation("b", unloads=False)
    place = Open([busy, followed, Conversation("c")])
    assert await place.after(3 * IDLE_SECONDS) == ["c"]
    assert not busy.ended
    assert not followed.ended
