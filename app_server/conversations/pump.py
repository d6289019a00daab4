"""The task that takes the events of one session and sends them to who subscribed; and the status that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from app_server.conversations.adapter import Activity, ConversationStatus
from app_server.conversations.questions import Questions
from app_server.conversations.subscriptions import Subscriptions
from app_server.rpc.outgoing import Outgoing
from protocol.engine.events import Question, SessionEvent, TurnEnded, TurnStarted, TurnStatus
from protocol.structs import replace

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle


class Pump:
    """From the session to the client, in the words of each API."""

    def __init__(self, session: SessionHandle, subscriptions: Subscriptions, outgoing: Outgoing) -> None:
        self._session, self._subscriptions, self._outgoing = session, subscriptions, outgoing
        self.questions = Questions(session, subscriptions, outgoing, self._questions_changed)
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
            if self._outgoing.congested:
                await self._outgoing.wait_for_capacity()

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
            approvals, inputs = self.questions.approvals > 0, self.questions.inputs > 0
            self._set_status(replace(self.status, waiting_on_approval=approvals, waiting_on_input=inputs))

    def _set_status(self, status: ConversationStatus) -> None:
        if status != self.status:
            self.status = status
            self._subscriptions.send_status(status)
