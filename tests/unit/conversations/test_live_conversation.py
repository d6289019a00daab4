"""A live conversation between a session and APIs that it does not know, and when it is ended for being idle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from anyio import wait_all_tasks_blocked
from anyio.abc import TaskGroup

from app_server.conversations.adapter import ClientLine, ClientQuestion, ConversationStatus
from app_server.conversations.live import LiveConversation
from app_server.conversations.subscriptions import Client
from app_server.conversations.unused import IDLE_SECONDS, LOOK_SECONDS, MOST_IDLE, NO_ROOM, IdleUnloader
from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.session.commands import AddToHistory, Close, Command
from app_server.identity import ClientProfile
from app_server.rpc.outgoing import ClientReply, Outgoing
from protocol.engine.events import SessionEvent
from protocol.engine.questions import UserInputQuestion
from protocol.events.notices import BackgroundEventEvent
from protocol.structs import Json
from tests.support.callers import some_caller


class ScriptedSession:
    """Says what it is told to say; ends with a shutdown."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.ended = anyio.Event()
        self.busy = False
        self._ready: list[SessionEvent] = []
        self._some = anyio.Event()

    def say(self, *texts: str) -> None:
        """A text with a question mark asks the user."""
        for text in texts:
            asks = UserInputQuestion(text, ()) if text.endswith("?") else BackgroundEventEvent(message=text)
            self._ready.append(SessionEvent("7", None, asks))
        self._some.set()

    def do(self, command: Command) -> None:
        self.commands.append(command)
        if isinstance(command, Close):
            self.say("bye")
            self.ended.set()

    async def events(self) -> list[SessionEvent]:
        while not self._ready:
            if self.ended.is_set():
                return []
            self._some = anyio.Event()
            await self._some.wait()
        taken, self._ready = self._ready, []
        return taken

    def give_back(self, events: Sequence[SessionEvent]) -> None:
        self._ready[:0] = events

    async def run(self) -> None:
        await self.ended.wait()
        self._some.set()

    def store_identity(self) -> None:
        pass


def text_of(event: SessionEvent) -> str:
    match event.event:
        case BackgroundEventEvent(message=text) | UserInputQuestion(call_id=text):
            return text
        case _:
            raise AssertionError(event)


class Words:
    """An API that spells events in its own way, and asks about those that end in a question mark."""

    spelling = "{id} {text}"
    made: list[Words]

    def __init__(self, conversation_id: str, ids: ItemIds) -> None:
        self.conversation_id = conversation_id
        self.elsewhere = False
        self.raw: list[bool] = []
        type(self).made.append(self)

    needs_identity = outlasts_clients = runs_tools = False

    def lines(self, event: SessionEvent, *, subscribed: bool, raw: bool) -> Sequence[ClientLine]:
        self.raw.append(raw)
        text = text_of(event)
        if self.elsewhere and text == "bye":
            return ()
        return (ClientLine(self.spelling.format(id=event.operation_id, text=text).encode()),)

    def question(self, event: SessionEvent) -> ClientQuestion | None:
        id = event.operation_id
        assert text_of(event).endswith("?")

        def to_command(result: Json) -> Command:
            return AddToHistory(f"{type(self).__name__} {id} {result}")

        return ClientQuestion(type(self).__name__, b"{}", to_command, lambda result: result != "?")

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[ClientLine]:
        return ()

    def status_changed(self, status: ConversationStatus) -> Sequence[ClientLine]:
        return ()

    def continue_elsewhere(self, *, continues: bool) -> None:
        self.elsewhere = continues

    def taken_back(self) -> None:
        pass


class One(Words):
    made: list[Words] = []  # noqa: RUF012


class Other(Words):
    spelling = "other {text}"
    made: list[Words] = []  # noqa: RUF012


class Place:
    def __init__(
        self, live: LiveConversation, session: ScriptedSession, client: Client, group: TaskGroup
    ) -> None:
        self.live, self.session, self.client, self.group = live, session, client, group
        self.written: list[str] = []

    async def heard(self) -> list[str]:
        await anyio.wait_all_tasks_blocked()
        heard, self.written = self.written, []
        return heard


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    One.made, Other.made = [], []
    session = ScriptedSession()

    async def write(data: bytes) -> None:
        here.written += data.decode().splitlines()

    outgoing = Outgoing(write, 1 << 20)
    client = Client(outgoing, ClientProfile(), some_caller())
    live = LiveConversation("c", cast("Any", session), client, [client], 0.0, brings_tools=False)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            here = Place(live, session, client, group)
            group.start_soon(outgoing.write_queued)
            group.start_soon(here.live.run)
            yield here
            await here.live.shut_down()
            await outgoing.finish()


async def test_idle_is_what_nobody_follows_and_nothing_runs_in() -> None:
    async with place() as p:
        seen = [p.live.idle]
        p.live.subscribe(p.client, "s", One, raw=False)
        seen.append(p.live.idle)
        p.live.subscriptions.remove(p.client, "s")
        seen.append(p.live.idle)
        p.session.busy = True
        assert [*seen, p.live.idle] == [True, False, True, False]


async def test_the_client_is_asked_once_in_the_words_of_the_api_that_was_subscribed_to_last() -> None:
    async with place() as p:
        p.live.subscribe(p.client, "a", Other, raw=False)
        p.live.subscribe(p.client, "b", One, raw=False)
        p.session.say("sure?")
        heard = await p.heard()
        assert heard == ["other sure?", "7 sure?", '{"id":0,"method":"One","params":{}}']
        p.client.outgoing.pending.resolve(0, ClientReply(result="yes"))
        await p.heard()
        p.session.say("again?")
        await p.heard()
        p.client.outgoing.pending.resolve(1, ClientReply(error="broken"))
        await p.heard()
    assert answers_of(p.session) == ["One 7 yes", "One 7 None"]


def answers_of(session: ScriptedSession) -> list[str]:
    return [each.text for each in session.commands if isinstance(each, AddToHistory)]


async def test_adapters_know_that_the_conversation_goes_on_elsewhere() -> None:
    async with place() as p:
        p.live.subscribe(p.client, "a", One, raw=False)
        await p.live.hand_over()
        p.live.subscribe(p.client, "b", Other, raw=False)
        assert await p.heard() == []
    assert all(each.elsewhere for each in (*One.made, *Other.made))


async def test_the_last_events_of_a_conversation_are_sent() -> None:
    async with place() as p:
        p.live.subscribe(p.client, "a", One, raw=False)
        await p.live.shut_down()
        assert await p.heard() == ["7 bye"]


@dataclass
class Conversation:
    id: str
    idle: bool = True
    unloads: bool = True
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
        self.unloader = IdleUnloader(cast("Any", self), lambda: self.now)
        self.unloader.closed.append(lambda live: self.closed.append(live.id))

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
    place = Open([busy, followed, Conversation("c"), Conversation("d", unloads=False, deserted=True)])
    assert await place.after(3 * IDLE_SECONDS) == ["c", "d"]
    assert not busy.ended
    assert not followed.ended
