"""One open conversation: its session, who subscribed to it, and the pump between them.

Events wait in the session until somebody subscribes, so a subscriber that comes late misses nothing. Questions to the
user make a round trip here: event out, request out, the client's answer back in as an operation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.conversations.adapter import AdapterFactory, ApiAdapter, ClientQuestion, Subscriber
from app_server.core.errors import CoreError
from app_server.rpc.outgoing import Outgoing, describe
from protocol.engine.events import SessionEvent
from protocol.ops import InterruptOp, Op, ShutdownOp

if TYPE_CHECKING:
    from app_server.core.session.session import Session

log = logging.getLogger(__name__)


class LiveConversation:
    """Alive from opening to shutdown."""

    def __init__(
        self, id: str, session: Session, outgoing: Outgoing, new_operation_id: Callable[[], str]
    ) -> None:
        self.id, self.session = id, session
        self._outgoing = outgoing
        self._new_operation_id = new_operation_id
        self._adapters: dict[AdapterFactory, ApiAdapter] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._audience: tuple[Subscriber, ...] = ()
        """Each adapter that has subscribers, once."""
        self._subscribed = anyio.Event()
        self._continues_elsewhere = False
        self.gone = anyio.Event()

    @property
    def rollout_path(self) -> Path:
        return self.session.rollout_path

    # --- subscribers
    def subscribe(self, subscription_id: str, make_adapter: AdapterFactory, *, raw: bool) -> None:
        """Subscriptions of one API share an adapter: each event reaches the client once in the words of an API."""
        adapter = self._adapters.get(make_adapter)
        if adapter is None:
            adapter = self._adapters[make_adapter] = make_adapter(self.id)
            if self._continues_elsewhere:
                adapter.continues_elsewhere()
        self._subscribers[subscription_id] = Subscriber(adapter, raw)
        self._subscribers_changed()

    def unsubscribe(self, subscription_id: str) -> bool:
        if self._subscribers.pop(subscription_id, None) is None:
            return False
        self._subscribers_changed()
        return True

    def mute(self) -> None:
        """The client has left: nobody is sent anything more."""
        self._subscribers.clear()
        self._subscribers_changed()

    def _subscribers_changed(self) -> None:
        subscribers = self._subscribers.values()
        self._audience = tuple(
            Subscriber(adapter, any(each.raw for each in subscribers if each.adapter is adapter))
            for adapter in self._adapters.values()
            if any(each.adapter is adapter for each in subscribers)
        )
        if self._audience:
            self._subscribed.set()
        else:
            self._subscribed = anyio.Event()

    # --- operations
    def submit(self, op: Op) -> str:
        """The id that the operation's events carry. Raises CoreError once the session has ended."""
        id = self._new_operation_id()
        self.session.submit(id, op)
        return id

    async def interrupt(self) -> None:
        """Returns once nothing runs; at once where nothing did."""
        active = self.session.active
        self.submit(InterruptOp())
        if active is not None:
            await active.ended.wait()

    async def shut_down(self) -> None:
        """End it in good order: what runs is interrupted, everything is stored, the file is let go."""
        try:
            self.submit(ShutdownOp())
        except CoreError:
            pass  # it ends already
        await self.gone.wait()

    async def hand_over(self) -> None:
        """End it because it goes on in another session. Subscribers are told how its turn ends."""
        self._continues_elsewhere = True
        for adapter in self._adapters.values():
            adapter.continues_elsewhere()
        await self.shut_down()

    # --- life
    async def run(self) -> None:
        """The session, the pump and the round trips, until the session ends."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, group, name=f"pump {self.id}")
                await self.session.run()
                if not self._audience:
                    group.cancel_scope.cancel()
        finally:
            self.gone.set()

    async def _pump(self, group: TaskGroup) -> None:
        while self._audience or not self.session.ended.is_set():
            if not self._subscribed.is_set():
                await self._subscribed.wait()
            events = await self.session.events()
            if not events:
                break
            for n, event in enumerate(events):
                if not self._audience:
                    self.session.give_back(events[n:])
                    break
                self._forward(event, group)
                if self._outgoing.congested:
                    await self._outgoing.wait_for_capacity()
        group.cancel_scope.cancel()  # the session has ended: open questions have nobody to ask for them

    def _forward(self, event: SessionEvent, group: TaskGroup) -> None:
        question = None
        for each in self._audience:
            for line in each.adapter.lines(event, subscribed=True, raw=each.raw):
                self._outgoing.send(line)
            if question is None:  # the client is asked once, in the words of the API that came first
                question = each.adapter.question(event)
        if question is not None:
            group.start_soon(self._ask, question, name="question")

    async def _ask(self, question: ClientQuestion) -> None:
        reply = await self._outgoing.request(question.method, question.params)
        if reply.error is not None:
            log.warning(
                "%s was answered with an error, which is a no: %s", question.method, reply.error[:200]
            )
        else:
            log.debug("%s was answered with %s", question.method, describe(reply.result))
        try:
            self.submit(question.to_op(None if reply.error is not None else reply.result))
        except CoreError:
            pass  # the conversation has ended meanwhile
