"""A live conversation between a session and unknown APIs, and its end when it is idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio
from anyio import wait_all_tasks_blocked

from app_server.engine.session.session_commands import Close, Command
from app_server.engine.support.client_info import ClientProfile
from app_server.engine.turn.outbox import ReleasedEvents
from app_server.server.conversations.adapter import ApiAdapter, ApiId, ConversationApi
from app_server.server.conversations.idle import IDLE_SECONDS, LOOK_SECONDS, MOST_IDLE, NO_ROOM, IdleReaper
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.subscriptions import Client
from app_server.server.rpc.outgoing import OutboundQueue
from tests.support.callers import some_caller


class ScriptedSession:
    """Session that emits nothing, and ends when the test lets it."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.events = ReleasedEvents()
        self.busy = False

    def do(self, command: Command) -> None:
        if isinstance(command, Close):
            self.ended.set()
            self.events.close()

    async def run(self) -> None:
        await self.ended.wait()

    def store_identity(self) -> None:
        pass

    def emit_raw_items(self, wanted: bool) -> None:
        pass


class SilentAdapter:
    """Adapter that makes no lines."""

    needs_identity = outlasts_clients = runs_tools = False
    elsewhere = False

    def api(self, name: Literal["v1", "v2"]) -> ConversationApi:
        return ConversationApi(ApiId(name), lambda _id: cast("ApiAdapter", self))

    def on_session_replaced(self, *, continues: bool) -> None:
        self.elsewhere = continues


@asynccontextmanager
async def running() -> AsyncIterator[tuple[LiveConversation, ScriptedSession, Client]]:
    async def write(data: bytes) -> None:
        pass

    session, client = ScriptedSession(), Client(OutboundQueue(write, 1 << 20), ClientProfile(), some_caller())
    live = LiveConversation("c", cast("Any", session), client, [client], 0.0, brings_tools=False)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(live.run)
            yield live, session, client
            await live.shut_down()


async def test_idle_is_what_nobody_follows_and_nothing_runs_in() -> None:
    async with running() as (live, session, client):
        seen = [live.idle]
        live.subscribe(client, "s", SilentAdapter().api("v1"), raw=False)
        seen.append(live.idle)
        live.subscriptions.remove(client, "s")
        seen.append(live.idle)
        session.busy = True
        assert [*seen, live.idle] == [True, False, True, False]


async def test_adapters_know_that_the_conversation_goes_on_elsewhere() -> None:
    before, after = SilentAdapter(), SilentAdapter()
    async with running() as (live, _, client):
        live.subscribe(client, "a", before.api("v1"), raw=False)
        await live.hand_over()
        live.subscribe(client, "b", after.api("v2"), raw=False)
    assert before.elsewhere
    assert after.elsewhere


@dataclass
class Conversation:
    id: str
    idle: bool = True
    auto_unload: bool = True
    deserted: bool = False
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
        self.unloader = IdleReaper(cast("Any", self), lambda: self.now)
        self.unloader.closed.append(lambda live: self.closed.append(live.id))

    def all(self) -> list[Conversation]:
        for each in self.conversations:
            if not self.ending_is_slow:
                each.may_end.set()
        return [each for each in self.conversations if not each.ended]

    async def after(self, seconds: float) -> list[str]:
        """Return the threads that are closed by now, with a check each minute."""
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
        assert len(ending) == NO_ROOM - MOST_IDLE  # all end at once, and each end is awaited
        for each in ending:
            each.may_end.set()
    assert len(place.all()) == MOST_IDLE
    await place.unloader.wait_for_room()
    assert len(place.all()) == MOST_IDLE


async def test_others_stay() -> None:
    busy, followed = Conversation("a", idle=False), Conversation("b", auto_unload=False)
    place = Open([busy, followed, Conversation("c"), Conversation("d", auto_unload=False, deserted=True)])
    assert await place.after(3 * IDLE_SECONDS) == ["c", "d"]
    assert not busy.ended
    assert not followed.ended
