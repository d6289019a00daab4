"""One open conversation: its session, who listens to it, and the pump between them.

Events wait in the session until somebody listens, so a listener that comes late misses nothing. Questions to the
user make a round trip here: event out, request out, the client's answer back in as an operation.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.core.errors import CoreError
from app_server.projection.approvals import Asking, answer, asks, question
from app_server.projection.outbound import EventProjection
from app_server.rpc.outgoing import Outgoing, describe
from protocol.engine.events import SessionEvent
from protocol.events.notices import ShutdownCompleteEvent
from protocol.events.turn import RawResponseItemEvent
from protocol.ops import InterruptOp, Op, ShutdownOp

if TYPE_CHECKING:
    from app_server.core.session.session import Session

log = logging.getLogger(__name__)


class LiveConversation:
    """Alive from opening to shutdown."""

    def __init__(self, id: str, session: Session, outgoing: Outgoing) -> None:
        self.id, self.session = id, session
        self._outgoing = outgoing
        self._projection = EventProjection(id)
        self._listeners: dict[str, bool] = {}
        self._listened = anyio.Event()
        self._handed_over = False
        self.gone = anyio.Event()

    @property
    def rollout_path(self) -> Path:
        return self.session.services.rollout_path

    # --- listeners
    def listen(self, subscription_id: str, *, raw: bool) -> None:
        self._listeners[subscription_id] = raw
        self._listened.set()

    def stop_listening(self, subscription_id: str) -> bool:
        if subscription_id not in self._listeners:
            return False
        del self._listeners[subscription_id]
        if not self._listeners:
            self._listened = anyio.Event()
        return True

    def mute(self) -> None:
        """The client has left: nobody is told anything more."""
        self._listeners.clear()
        self._listened = anyio.Event()

    # --- operations
    def submit(self, op: Op) -> str:
        return self.session.submit(op)

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
        """End it because it goes on as another: those who listen hear how its turn ends, and of no shutdown."""
        self._handed_over = True
        await self.shut_down()

    # --- life
    async def run(self) -> None:
        """The session, the pump and the round trips, until the session ends."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, group, name=f"pump {self.id}")
                await self.session.run()
                if not self._listeners:
                    group.cancel_scope.cancel()
        finally:
            self.gone.set()

    async def _pump(self, group: TaskGroup) -> None:
        while self._listeners or not self.session.ended.is_set():
            if not self._listened.is_set():
                await self._listened.wait()
            events = await self.session.services.outbox.take()
            if not events:
                break
            for n, event in enumerate(events):
                if not self._listeners:
                    self.session.services.outbox.give_back(events[n:])
                    break
                self._forward(event, group)
                if self._outgoing.congested:
                    await self._outgoing.room()
        group.cancel_scope.cancel()  # the session has ended: open questions have nobody to ask for them

    def _forward(self, event: SessionEvent, group: TaskGroup) -> None:
        msg = event.event
        if isinstance(msg, RawResponseItemEvent) and not any(self._listeners.values()):
            return
        if self._handed_over and isinstance(msg, ShutdownCompleteEvent):
            return
        for line in self._projection.lines(event):
            self._outgoing.send(line)
        if asks(msg):
            group.start_soon(self._ask, event.operation_id, msg, name="question")

    async def _ask(self, turn_id: str, event: Asking) -> None:
        asked = question(self.id, event)
        came = await self._outgoing.request(asked.method, asked.params)
        if came.error is not None:
            log.warning("%s was answered with an error, which is a no: %s", asked.method, came.error[:200])
        else:
            log.debug("%s was answered with %s", asked.method, describe(came.result))
        try:
            self.submit(answer(turn_id, event, None if came.error is not None else came.result))
        except CoreError:
            pass  # the conversation has ended meanwhile
