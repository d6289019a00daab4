"""Which conversations are ended for being idle, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from app_server.conversations.unloading import IDLE_SECONDS, LOOK_SECONDS, MOST_IDLE, IdleUnloader

pytestmark = pytest.mark.anyio


@dataclass
class Conversation:
    id: str
    idle: bool = True
    unloads: bool = True
    ended: bool = False

    async def shut_down(self) -> None:
        self.ended = True


@dataclass
class Open:
    conversations: list[Conversation]
    now: float = 0.0
    closed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unloader = IdleUnloader(cast(Any, self), lambda: self.now, self.closed.append)

    def all(self) -> list[Conversation]:
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


async def test_others_stay() -> None:
    busy, followed = Conversation("a", idle=False), Conversation("b", unloads=False)
    place = Open([busy, followed, Conversation("c")])
    assert await place.after(3 * IDLE_SECONDS) == ["c"]
    assert not busy.ended
    assert not followed.ended
