"""One open conversation, from its opening to its end: its session, its subscriptions, and the pump between them. The
pump takes the events of the session, sends them to the subscribers, and tracks the conversation's status.

A client that joins goes this way, so that it gets everything once:

1. Its request notes the `Position` of the running turn, and reads from the disk what it has to, which takes a while.
2. `catch_up`: subscribers are sent all events that the session has emitted. The running turn has now come as far as
   the session, so beyond what was read; from here on nothing is awaited.
3. The answer is made of what was read, of what has ended since the position, and of the running turn.
4. It is queued, and in the same step `join` queues the running turn behind it, and then the open questions. What
   follows is sent to the client as to every subscriber.

If the client leaves before the second step, nothing is to be undone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.engine.session.session_commands import Close, Interrupt
from app_server.engine.support.engine_errors import CoreError
from app_server.server.conversations.adapter import (
    Activity,
    ConversationApi,
    ConversationStatus,
    QuestionKind,
)
from app_server.server.conversations.live_turn import LiveTurn
from app_server.server.conversations.server_requests import ServerRequests
from app_server.server.conversations.subscriptions import Client, Subscriptions
from app_server_protocol.engine.events import SessionEvent, TurnEnded, TurnStarted, TurnStatus
from app_server_protocol.engine.notices import SessionClosed
from app_server_protocol.engine.questions import Question
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.session.facade import SessionHandle


NEXT_TURN_SECONDS = 0.01
"""Time in which a requested turn may begin after the one before has ended, in seconds."""


class Pump:
    """Sends the events of the session to the clients, in the shapes of each API."""

    def __init__(self, session: SessionHandle, subscriptions: Subscriptions, tools_of: Client | None) -> None:
        self._session, self._events, self._subscriptions = session, session.events, subscriptions
        self.questions = ServerRequests(session, subscriptions, tools_of, self._questions_changed)
        self.status = ConversationStatus()
        self._turn_ends = False
        self._group: TaskGroup | None = None
        """Task group of the tasks that wait for answers to questions; None before the first event."""

    async def run(self, group: TaskGroup) -> None:
        """Send events until the session has ended, while the conversation is followed; then cancel the group."""
        subscriptions, self._group = self._subscriptions, group
        while subscriptions.followed.is_set() or not self._session.ended.is_set():
            if not subscriptions.followed.is_set():
                await subscriptions.followed.wait()
            if not await self._events.wait():
                break
            if subscriptions.followed.is_set():
                self.send(self._events.take())
                await subscriptions.wait_for_capacity()
        group.cancel_scope.cancel()  # the session has ended: answers to open questions are no longer needed

    def catch_up(self) -> None:
        """Send all events that the session has emitted, even while subscribers are behind. Nothing is sent while the
        events wait for the client that opens the conversation.
        """
        if not self._session.ended.is_set():
            self._session.store()
        group = self._group
        if group is not None and not group.cancel_scope.cancel_called and not self._subscriptions.events_wait:
            while len(self._events):
                self.send(self._events.take())

    def send(self, event: SessionEvent) -> None:
        """Apply an event to the running turn, and send it to the subscribers; for APIs without subscribers it waits."""
        live, channels = self._subscriptions.live_turn, self._subscriptions.apis.values()
        self._before(event)
        for each in live.take(event):
            for channel in channels:
                channel.send(each, live)
        self._after(event)

    def _before(self, event: SessionEvent) -> None:
        """Send what precedes an event: that the conversation is active, that questions are closed."""
        if isinstance(event.event, TurnStarted):
            self._set_status(ConversationStatus(Activity.ACTIVE))
        elif isinstance(event.event, TurnEnded) and self.questions.open:
            self._turn_ends = True  # the end of the turn makes the next status
            self.questions.close_all()
            self._turn_ends = False

    def _after(self, event: SessionEvent) -> None:
        """Send what follows an event: the status after a turn, a question."""
        if isinstance(event.event, TurnEnded):
            failed = event.event.status is TurnStatus.FAILED
            self._set_status(ConversationStatus(Activity.SYSTEM_ERROR if failed else Activity.IDLE))
        elif isinstance(event.event, Question):
            assert self._group is not None  # no session asks before its pump runs
            self.questions.ask(event, event.event, self._group)

    def _questions_changed(self) -> None:
        """Update the status with the kinds of open questions; they count only while a turn runs."""
        if not self._turn_ends and self.status.activity is Activity.ACTIVE:
            approvals = self.questions.any_of(QuestionKind.APPROVAL)
            inputs = self.questions.any_of(QuestionKind.INPUT)
            self._set_status(replace(self.status, waiting_on_approval=approvals, waiting_on_input=inputs))

    def _set_status(self, status: ConversationStatus) -> None:
        if status != self.status:
            self.status = status
            self._subscriptions.send_status(status)


class LiveConversation:
    """A conversation from its opening to its shutdown."""

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
        """Begin without subscriptions. `opener` is one of the server's `clients`, and may bring tools. `opened_at` is a
        time in seconds since 1970.
        """
        self.id, self.session, self.forked_from = id, session, forked_from
        self.subscriptions = Subscriptions(id, session, clients)
        self._pump = Pump(session, self.subscriptions, opener if brings_tools else None)
        self.unstored_name: str | None = None
        """Name of a conversation that is not stored; names of stored ones are beside their files."""
        self.opened_at, self.opened_by, self._clients = opened_at, opener, clients
        self.pending_warnings: list[str] = []
        """Warnings from a time without subscribers, which are sent to the next client that subscribes."""
        self.auto_unload = False
        """Whether the conversation may be unloaded once it has been idle for long, even while its opener
        is connected.
        """
        self._kept = 0
        self.ending = False
        """Whether the end of the conversation was requested; `gone` is set when it has ended."""
        self.gone = anyio.Event()

    @property
    def rollout_path(self) -> Path | None:
        return self.session.facts.rollout_path

    @property
    def ephemeral(self) -> bool:
        """Whether the conversation is not stored."""
        return self.rollout_path is None

    @property
    def status(self) -> ConversationStatus:
        return self._pump.status

    @property
    def questions(self) -> ServerRequests:
        return self._pump.questions

    def subscribe(self, client: Client, id: str, api: ConversationApi, *, raw: bool) -> None:
        """Subscribe a client. It is sent the events that waited, all later events in the shapes of that API, and the
        open questions.
        """
        self.questions.joined(client, self.subscriptions.add(client, id, api, raw=raw))
        self.flush_warnings()

    def catch_up(self) -> LiveTurn:
        """Send all events that the session has emitted; return the running turn, which is then as far as the file."""
        self._pump.catch_up()
        return self.subscriptions.live_turn

    def join(self, client: Client, id: str, api: ConversationApi) -> None:
        """Subscribe a client that was answered in this step: to the running turn, questions and all later events."""
        self.questions.joined(client, self.subscriptions.join(client, id, api))
        self.flush_warnings()

    def join_later(self, client: Client, api: ConversationApi) -> None:
        """Let all that `join` sends wait for the client's first subscription by `subscribe`."""
        self.subscriptions.join_later(client, api, [each.event for each in self.questions.open])

    def unsubscribe(self, client: Client, id: str) -> None:
        """End a subscription, if there is one of that id."""
        self.subscriptions.remove(client, id)
        self.questions.fail_lost_calls()

    def flush_warnings(self) -> None:
        """Send the subscribers the warnings from a time without subscribers."""
        for warning in self.pending_warnings:
            self.session.warn(warning)
        self.pending_warnings.clear()

    def shared_with_others(self, client: Client) -> bool:
        """Return whether other clients use the conversation: they have a seat, or work goes on that a client has begun
        and left.
        """
        subscriptions = self.subscriptions
        return bool(subscriptions.present - {client}) or (subscriptions.left and self.busy)

    def leave(self, client: Client) -> None:
        """Remove a client that has left; running work goes on."""
        self.subscriptions.leave(client)
        self.questions.leave(client)

    # --- idleness
    @property
    def idle(self) -> bool:
        """Whether the conversation is idle: no client is subscribed or about to be, no work runs or is about to, no
        command goes on, and the conversation is not ending.
        """
        if self.ending or self._kept or self.subscriptions.any:
            return False
        return not self.busy

    @property
    def deserted(self) -> bool:
        """Whether the opener has left, and no client has a seat."""
        return self.opened_by not in self._clients and not self.subscriptions.present

    @property
    def busy(self) -> bool:
        """Whether work runs or is about to, or a command goes on."""
        return self.status.activity is Activity.ACTIVE or self.session.busy

    def interrupt(self) -> None:
        """Interrupt the running work."""
        try:
            self.session.do(Interrupt())
        except CoreError:
            pass  # the session ends already

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the conversation from being idle while a request is served that may subscribe."""
        self._kept += 1
        try:
            yield
        finally:
            self._kept -= 1

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep the conversation from being idle, as `kept` does, and its events for the client that opened it. End it
        if the request fails: no client would be sent its events.
        """
        with self.kept(), self.subscriptions.opening():
            try:
                yield
            except Exception:
                await self.shut_down()
                raise

    # --- run and shutdown
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
        """End the conversation cleanly: running work is interrupted, all events are stored, the file is released."""
        self.ending = True
        try:
            self.session.do(Close())
        except CoreError:
            pass  # the session ends already
        await self.gone.wait()

    async def end_when_settled(self) -> None:
        """End the conversation once its turns have ended, including those that were requested. No further turn begins
        for its goal.
        """
        self.subscriptions.on_watched = lambda watched: None
        self.session.goal.watch(False)
        while self.session.turns.current_id is not None:
            await self.session.settled()
            await anyio.sleep(NEXT_TURN_SECONDS)
        await self.shut_down()

    def take_over_from(self, before: LiveConversation) -> None:
        """Subscribe the clients that were subscribed to `before`, which was reverted, and notify them."""
        self.questions.tools_stay(before.questions, self._clients)
        for client, adapter in self.subscriptions.take_seats(before.subscriptions):
            self.questions.joined(client, adapter)

    @asynccontextmanager
    async def replaced(self) -> AsyncIterator[None]:
        """End the conversation because it goes on in another session. If opening that one fails, notify the subscribers
        of this one's end.
        """
        await self.hand_over()
        try:
            yield
        except Exception:
            self.subscriptions.on_session_replaced(continues=False)
            self._pump.send(SessionEvent("", None, SessionClosed()))
            raise

    async def hand_over(self) -> None:
        """End the conversation because it goes on in another session. Subscribers are sent the end of its turn."""
        self.subscriptions.on_session_replaced(continues=True)
        await self.shut_down()
