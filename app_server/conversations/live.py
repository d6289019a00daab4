"""One open conversation, from its opening to its end: its session, who subscribed to it, and the pump between them. The
pump takes the events of the session, sends them to who subscribed, and keeps the status that they make.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.conversations.adapter import (
    Activity,
    ClientLine,
    ConversationApi,
    ConversationStatus,
    QuestionKind,
)
from app_server.conversations.questions import Questions
from app_server.conversations.subscriptions import Client, Subscriptions
from app_server.core.errors import CoreError
from app_server.core.session.commands import Close, Interrupt
from app_server_protocol.engine.events import Question, SessionEvent, TurnEnded, TurnStarted, TurnStatus
from app_server_protocol.events.notices import ShutdownCompleteEvent
from app_server_protocol.structs import replace

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle


NEXT_TURN_SECONDS = 0.01
"""For a turn that was requested to begin, where another one has ended."""


class Pump:
    """From the session to the clients, in the words of each API."""

    def __init__(self, session: SessionHandle, subscriptions: Subscriptions, tools_of: Client | None) -> None:
        self._session, self._subscriptions = session, subscriptions
        self.questions = Questions(session, subscriptions, tools_of, self._questions_changed)
        self.status = ConversationStatus()
        self._turn_ends = False

    async def run(self, group: TaskGroup) -> None:
        """Send events until the session has ended, as long as somebody follows; then end the group."""
        subscriptions = self._subscriptions
        while subscriptions.followed.is_set() or not self._session.ended.is_set():
            if not subscriptions.followed.is_set():
                await subscriptions.followed.wait()
            events = await self._session.events()
            if not events:
                break
            await self._send_all(events, group)
            del events  # or the output of a last command would be held until the next turn
        group.cancel_scope.cancel()  # the session has ended: open questions have nobody to ask for them

    async def _send_all(self, events: Sequence[SessionEvent], group: TaskGroup) -> None:
        """Send events; those that nobody wants any more are given back."""
        for n, event in enumerate(events):
            if not self._subscriptions.followed.is_set():
                self._session.give_back(events[n:])
                break
            self._send(event, group)
            await self._subscriptions.wait_for_capacity()

    def _send(self, event: SessionEvent, group: TaskGroup) -> None:
        match event.event:
            case TurnStarted():
                self._set_status(ConversationStatus(Activity.ACTIVE))
                self._subscriptions.send(event)
            case TurnEnded(status=status):
                if self.questions.open:
                    self._turn_ends = True  # the end of the turn is the next status
                    self.questions.close_all()
                    self._turn_ends = False
                self._subscriptions.send(event)
                failed = status is TurnStatus.FAILED
                self._set_status(ConversationStatus(Activity.SYSTEM_ERROR if failed else Activity.IDLE))
            case asking:
                self._subscriptions.send(event)
                if isinstance(asking, Question):
                    self.questions.ask(event, group)

    def _questions_changed(self) -> None:
        """Show how many questions are open; they count only while a turn runs."""
        if not self._turn_ends and self.status.activity is Activity.ACTIVE:
            approvals = self.questions.any_of(QuestionKind.APPROVAL)
            inputs = self.questions.any_of(QuestionKind.INPUT)
            self._set_status(replace(self.status, waiting_on_approval=approvals, waiting_on_input=inputs))

    def _set_status(self, status: ConversationStatus) -> None:
        if status != self.status:
            self.status = status
            self._subscriptions.send_status(status)


class Joining:
    """A client on its way into a conversation."""

    def __init__(
        self, live: LiveConversation, client: Client, api: ConversationApi, begun: set[str] | None
    ) -> None:
        self._live, self._client, self._api = live, client, api
        self.begun = begun
        """The turns that have begun since; None: the client was in it before, and is told nothing again."""

    def enter(self, lines: Sequence[ClientLine]) -> None:
        """Send what the client joins, then what has happened since; then ask it what is open."""
        subscriptions = self._live.subscriptions
        subscriptions.release(self._client, self._api, lines)
        self._live.questions.joined(self._client, subscriptions.adapter(self._api, self._client))
        self._live.tell_untold()


class LiveConversation:
    """Alive from opening to shutdown."""

    def __init__(
        self,
        id: str,
        session: SessionHandle,
        opener: Client,
        clients: Collection[Client],
        opened_at: float,
        forked_from: str | None = None,
        *,
        brings_tools: bool,
    ) -> None:
        """`opener` is one of the server's `clients`, and may bring tools; `opened_at`: seconds since 1970."""
        self.id, self.session, self.forked_from = id, session, forked_from
        self.subscriptions = Subscriptions(id, session, clients)
        self._pump = Pump(session, self.subscriptions, opener if brings_tools else None)
        self.unstored_name: str | None = None
        """The name of a conversation that is not stored; names of stored ones are beside their files."""
        self.opened_at, self.opened_by, self._clients = opened_at, opener, clients
        self.untold: list[str] = []
        """Warnings of a time in which nobody followed it, for whoever joins next."""
        self.unloads = False
        """Whether it may be ended once it has been idle for long, also while who opened it is there."""
        self._kept = 0
        self.ending = False
        """Whether its end was requested; it has ended when it is `gone`."""
        self.gone = anyio.Event()

    @property
    def rollout_path(self) -> Path | None:
        return self.session.facts.rollout_path

    @property
    def ephemeral(self) -> bool:
        """Whether it is not stored."""
        return self.rollout_path is None

    @property
    def status(self) -> ConversationStatus:
        return self._pump.status

    @property
    def questions(self) -> Questions:
        return self._pump.questions

    def subscribe(self, client: Client, id: str, api: ConversationApi, *, raw: bool) -> None:
        """Send what happens from here on in the words of that API, after what waited; open questions are sent, too."""
        self.questions.joined(client, self.subscriptions.add(client, id, api, raw=raw))
        self.tell_untold()

    @contextmanager
    def joining(self, client: Client, id: str, api: ConversationApi) -> Iterator[Joining]:
        """Subscribe a client from this moment on; it is sent nothing until `enter`, which comes behind the picture of
        the conversation that is made of this moment. Without `enter` the subscription ends with the block.
        """
        joining = Joining(self, client, api, self.subscriptions.hold(client, id, api))
        entered = False
        try:
            yield joining
            entered = True
        finally:
            if not entered and joining.begun is not None:
                self.unsubscribe(client, id)

    def unsubscribe(self, client: Client, id: str) -> None:
        """End a subscription, if there is one of that id."""
        self.subscriptions.remove(client, id)
        self.questions.fail_lost_calls()

    def tell_untold(self) -> None:
        """Tell who follows what was to be told while nobody did."""
        for warning in self.untold:
            self.session.warn(warning)
        self.untold.clear()

    def shared_with_others(self, client: Client) -> bool:
        """Tell whether it is more than this client's: others have a seat, or something goes on that another began."""
        subscriptions = self.subscriptions
        return bool(subscriptions.present - {client}) or (subscriptions.left and self.busy)

    def leave(self, client: Client) -> None:
        """Forget a client that has left; what runs goes on."""
        self.subscriptions.leave(client)
        self.questions.leave(client)

    # --- how long it stays
    @property
    def idle(self) -> bool:
        """Whether nobody is subscribed or about to be, nothing runs or is about to, no command of it goes on, and it is
        not ending.
        """
        if self.ending or self._kept or self.subscriptions.any:
            return False
        return not self.busy

    @property
    def deserted(self) -> bool:
        """Whether who opened it has left, and nobody else is in it."""
        return self.opened_by not in self._clients and not self.subscriptions.present

    @property
    def busy(self) -> bool:
        """Whether something runs or is about to, or a command of it goes on."""
        return self.status.activity is Activity.ACTIVE or self.session.busy

    def interrupt(self) -> None:
        """End what runs."""
        try:
            self.session.do(Interrupt())
        except CoreError:
            pass  # it ends already

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep it from being idle: a request is being answered that ends with a subscription."""
        self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep it from being idle, as `kept` does, and end it where the request fails for which it was opened: nobody
        would be told what happens in it.
        """
        with self.kept():
            try:
                yield
            except Exception:
                await self.shut_down()
                raise

    # --- its life
    async def run(self) -> None:
        """Run the session, the pump and the round trips, until the session ends."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump.run, group, name=f"pump {self.id}")
                await self.session.run()
                if not self.subscriptions.followed.is_set():
                    group.cancel_scope.cancel()
        finally:
            self.questions.close_all()
            self.gone.set()

    async def shut_down(self) -> None:
        """End it in good order: what runs is interrupted, everything is stored, the file is let go."""
        self.ending = True
        try:
            self.session.do(Close())
        except CoreError:
            pass  # it ends already
        await self.gone.wait()

    async def end_when_settled(self) -> None:
        """End it once its turns have ended, those that were requested, too. No other begins for its goal."""
        self.subscriptions.on_watched = lambda watched: None
        self.session.goal.watch(False)
        while self.session.current_turn is not None:
            await self.session.settled()
            await anyio.sleep(NEXT_TURN_SECONDS)
        await self.shut_down()

    def goes_on_from(self, before: LiveConversation) -> None:
        """Subscribe who was subscribed before it was taken back to an earlier turn, and tell them."""
        self.questions.tools_stay(before.questions, self._clients)
        for client, adapter in self.subscriptions.take_seats(before.subscriptions):
            self.questions.joined(client, adapter)

    @asynccontextmanager
    async def replaced(self) -> AsyncIterator[None]:
        """End it because it goes on in another session. Where that one fails, tell who followed this one of its end."""
        await self.hand_over()
        try:
            yield
        except Exception:
            self.subscriptions.continue_elsewhere(continues=False)
            self.subscriptions.send(SessionEvent("", None, ShutdownCompleteEvent()))
            raise

    async def hand_over(self) -> None:
        """End it because it goes on in another session. Subscribers receive the end of its turn."""
        self.subscriptions.continue_elsewhere(continues=True)
        await self.shut_down()
