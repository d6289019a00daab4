"""One open conversation: its session, the APIs that show it, and the pump between them.

Each API has one adapter here, which sees every event; who subscribed decides what is sent. Events wait in the session
until somebody subscribes, unless an API follows the conversation by turns and items: then the conversation goes on
without subscribers, and what the others would have been sent waits here, up to a bound.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.conversations.adapter import (
    Activity,
    AdapterFactory,
    ApiAdapter,
    ClientQuestion,
    ConversationStatus,
)
from app_server.conversations.questions import OpenQuestion, Questions
from app_server.core.errors import CoreError
from app_server.rpc.outgoing import Outgoing
from protocol.engine.events import SessionEvent, ToolQuestion, TurnEnded, TurnStarted
from protocol.engine.questions import ClientAnswer
from protocol.ops import InterruptOp, Op, ShutdownOp

if TYPE_CHECKING:
    from app_server.core.session.session import Session

log = logging.getLogger(__name__)

MOST_WAITING = 4096
"""Events that wait here for the first subscriber of an API, while the conversation goes on; then the oldest go."""


class Outlet(Struct):
    """One API of one conversation."""

    adapter: ApiAdapter
    subscribers: dict[str, bool] = msgspec.field(default_factory=dict)
    """By subscription, whether it wants the model's items as they came, too."""
    waiting: deque[SessionEvent] = msgspec.field(default_factory=lambda: deque(maxlen=MOST_WAITING))

    @property
    def raw(self) -> bool:
        return any(self.subscribers.values())


class LiveConversation:
    """Alive from opening to shutdown."""

    def __init__(
        self,
        id: str,
        session: Session,
        outgoing: Outgoing,
        new_operation_id: Callable[[], str],
        forked_from: str | None = None,
    ) -> None:
        self.id, self.session, self.forked_from = id, session, forked_from
        self.unstored_name: str | None = None
        """The name of a conversation that is not stored; names of stored ones are beside their files."""
        self.opened_at = time.time()
        self.unloads = False
        """Whether it may be ended once it has been idle for long."""
        self._kept = 0
        self._outgoing = outgoing
        self._new_operation_id = new_operation_id
        self._outlets: dict[AdapterFactory, Outlet] = {}
        self._follows = anyio.Event()
        """Set while events are taken: somebody is subscribed, or an API follows without subscribers."""
        self._questions = Questions(outgoing, self._questions_changed)
        self._preferred: AdapterFactory | None = None
        """The API whose request began the last turn."""
        self.status = ConversationStatus()
        self._turn_ends = False
        self._continues_elsewhere = False
        self.ending = False
        """Whether its end was requested; it has ended when it is `gone`."""
        self.gone = anyio.Event()

    @property
    def rollout_path(self) -> Path | None:
        return self.session.facts.rollout_path

    # --- subscribers
    def adapter(self, make_adapter: AdapterFactory) -> ApiAdapter:
        """The adapter of an API, made where there is none yet."""
        return self._outlet(make_adapter).adapter

    def subscribe(self, subscription_id: str, make_adapter: AdapterFactory, *, raw: bool) -> None:
        """Subscriptions of one API share an adapter: each event reaches the client once in the words of an API."""
        outlet = self._outlet(make_adapter)
        outlet.subscribers[subscription_id] = raw
        for event in list(outlet.waiting):
            self._send(outlet, event)
        outlet.waiting.clear()
        self._follow()
        self._questions.move(self._asked)
        self._questions.send_to(outlet.adapter)

    def unsubscribe(self, subscription_id: str) -> bool:
        found = any(
            outlet.subscribers.pop(subscription_id, None) is not None for outlet in self._outlets.values()
        )
        self._follow()
        return found

    def subscribed(self, make_adapter: AdapterFactory) -> bool:
        outlet = self._outlets.get(make_adapter)
        return outlet is not None and bool(outlet.subscribers)

    @property
    def idle(self) -> bool:
        """Nobody is subscribed or about to be, nothing runs or is about to, no command of it goes on, and it is not
        ending.
        """
        if self.ending or self._kept or any(outlet.subscribers for outlet in self._outlets.values()):
            return False
        return self.status.activity is not Activity.ACTIVE and not self.session.busy

    @contextmanager
    def kept(self) -> Iterator[None]:
        """It is not idle until it is released: a request is being answered that ends with a subscription. It is
        released where the block fails.
        """
        self._kept += 1
        try:
            yield
        except BaseException:
            self._kept -= 1
            raise

    def release(self) -> None:
        self._kept -= 1

    def wants_raw(self, make_adapter: AdapterFactory) -> bool:
        """Whether a subscriber of that API wants the model's items as they came, too."""
        outlet = self._outlets.get(make_adapter)
        return outlet is not None and outlet.raw

    def mute(self) -> None:
        """The client has left: nobody is sent anything more."""
        for outlet in self._outlets.values():
            outlet.subscribers.clear()
        self._follow()

    def _outlet(self, make_adapter: AdapterFactory) -> Outlet:
        outlet = self._outlets.get(make_adapter)
        if outlet is None:
            outlet = self._outlets[make_adapter] = Outlet(make_adapter(self.id))
            if self._continues_elsewhere:
                outlet.adapter.continues_elsewhere()
            if outlet.adapter.needs_identity:
                self.session.store_identity()
            self._follow()
        return outlet

    def _follow(self) -> None:
        follows = any(
            outlet.subscribers or outlet.adapter.needs_identity for outlet in self._outlets.values()
        )
        if follows:
            self._follows.set()
        elif self._follows.is_set():
            self._follows = anyio.Event()

    # --- operations
    def submit(self, op: Op | ClientAnswer, *, via: AdapterFactory | None = None) -> str:
        """The id that the operation's events carry. Raises CoreError once the session has ended.

        `via` is the API whose request it is: what the operation makes the engine ask is asked there.
        """
        id = self.new_operation(via)
        self.session.submit(id, op)
        return id

    def new_operation(self, via: AdapterFactory | None = None) -> str:
        """The id of an operation that the caller submits."""
        if via is not None:
            self._preferred = via
        return self._new_operation_id()

    async def interrupt(self) -> None:
        """Returns once nothing runs; at once where nothing did."""
        active = self.session.active
        self.submit(InterruptOp())
        if active is not None:
            await active.ended.wait()

    async def shut_down(self) -> None:
        """End it in good order: what runs is interrupted, everything is stored, the file is let go."""
        self.ending = True
        try:
            self.submit(ShutdownOp())
        except CoreError:
            pass  # it ends already
        await self.gone.wait()

    async def hand_over(self) -> None:
        """End it because it goes on in another session. Subscribers receive the end of its turn."""
        self._continues_elsewhere = True
        for outlet in self._outlets.values():
            outlet.adapter.continues_elsewhere()
        await self.shut_down()

    # --- life
    async def run(self) -> None:
        """The session, the pump and the round trips, until the session ends."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, group, name=f"pump {self.id}")
                await self.session.run()
                if not self._follows.is_set():
                    group.cancel_scope.cancel()
        finally:
            self._questions.close_all()
            self.gone.set()

    async def _pump(self, group: TaskGroup) -> None:
        while self._follows.is_set() or not self.session.ended.is_set():
            if not self._follows.is_set():
                await self._follows.wait()
            events = await self.session.events()
            if not events:
                break
            await self._forward_all(events, group)
            del events  # or the output of a last command would be held until the next turn
        group.cancel_scope.cancel()  # the session has ended: open questions have nobody to ask for them

    async def _forward_all(self, events: Sequence[SessionEvent], group: TaskGroup) -> None:
        """Those that nobody wants any more are given back."""
        for n, event in enumerate(events):
            if not self._follows.is_set():
                self.session.give_back(events[n:])
                break
            self._forward(event, group)
            if self._outgoing.congested:
                await self._outgoing.wait_for_capacity()

    def _forward(self, event: SessionEvent, group: TaskGroup) -> None:
        starts = isinstance(event.event, TurnStarted)
        if isinstance(event.event, TurnEnded):
            self._turn_ends = True  # the end of the turn is the next status
            self._questions.close_all()
            self._turn_ends = False
        if starts:
            self._set_status(self.status.after(event))
        for outlet in self._outlets.values():
            if outlet.subscribers or outlet.adapter.needs_identity:
                self._send(outlet, event)
            else:
                outlet.waiting.append(event)
        if not starts:
            self._set_status(self.status.after(event))
        self._ask(event, group)

    def _send(self, outlet: Outlet, event: SessionEvent) -> None:
        for line in outlet.adapter.lines(event, subscribed=bool(outlet.subscribers), raw=outlet.raw):
            self._outgoing.send(line)

    # --- questions
    def _ask(self, event: SessionEvent, group: TaskGroup) -> None:
        adapter = self._asked()
        if adapter is None:
            adapter = next(iter(self._outlets.values())).adapter
        question = adapter.question(event)
        if question is None and isinstance(event.event, ToolQuestion):
            adapter, question = self._who_has_words_for(event, adapter)
            if question is None:
                self.submit(ClientAnswer(event.operation_id, event.event.call_id, None))
        if question is not None:
            asks = any(each.adapter is adapter and each.subscribers for each in self._outlets.values())
            opened = self._questions.open(question, adapter, send=asks)
            group.start_soon(self._round_trip, opened, name="question")

    def _who_has_words_for(
        self, event: SessionEvent, adapter: ApiAdapter
    ) -> tuple[ApiAdapter, ClientQuestion | None]:
        """Another API that can ask this; None where there is none."""
        for outlet in self._outlets.values():
            question = outlet.adapter.question(event)
            if question is not None:
                return outlet.adapter, question
        return adapter, None

    def _asked(self) -> ApiAdapter | None:
        """Where the client is asked: the API that began the turn, else the one that was subscribed to last."""
        outlets = [outlet for outlet in self._outlets.values() if outlet.subscribers]
        preferred = self._outlets.get(self._preferred) if self._preferred is not None else None
        if preferred in outlets:
            return preferred.adapter
        return outlets[-1].adapter if outlets else None

    async def _round_trip(self, opened: OpenQuestion) -> None:
        with self._questions.until_answered(opened):
            result = await self._questions.answer(opened)
        if opened.closing.cancel_called:
            return
        try:
            self.submit(opened.question.to_op(result))
        except CoreError:
            pass  # the conversation has ended meanwhile

    # --- status
    def _questions_changed(self) -> None:
        if self._turn_ends:
            return
        self._set_status(
            self.status.waiting(approvals=self._questions.approvals, inputs=self._questions.inputs)
        )

    def _set_status(self, status: ConversationStatus) -> None:
        if status == self.status:
            return
        self.status = status
        for outlet in self._outlets.values():
            for line in outlet.adapter.status_changed(status):
                self._outgoing.send(line)
