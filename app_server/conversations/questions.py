"""Questions to the client that are open in one conversation: each is sent, answered or closed, once.

A question is for one API. It is sent when somebody is subscribed there, and sent again, under the same request id, to
whoever joins while it is open. The client's answer becomes a command to the session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.conversations.adapter import ApiAdapter, ClientQuestion, QuestionKind
from app_server.conversations.subscriptions import Subscriptions
from app_server.core.errors import CoreError
from app_server.core.session.commands import Answer, Command
from app_server.rpc.outgoing import Outgoing, Waiter, describe
from protocol.engine.events import SessionEvent, ToolQuestion
from protocol.structs import Json

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle

log = logging.getLogger(__name__)


class OpenQuestion(Struct):
    question: ClientQuestion
    adapter: ApiAdapter
    waiter: Waiter
    sent: bool = False
    closing: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)


class Questions:
    """The open questions of one conversation."""

    def __init__(
        self,
        session: SessionHandle,
        subscriptions: Subscriptions,
        outgoing: Outgoing,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called whenever another number of questions is open."""
        self._session, self._subscriptions = session, subscriptions
        self._outgoing, self._changed = outgoing, changed
        self.open: list[OpenQuestion] = []

    def any_of(self, kind: QuestionKind) -> bool:
        return any(each.question.kind is kind for each in self.open)

    def ask(self, event: SessionEvent, group: TaskGroup) -> None:
        """Ask the client what the event asks, once somebody is there. The group waits for the answer."""
        adapter = self._subscriptions.asked()
        question = adapter.question(event)
        if question is None and isinstance(event.event, ToolQuestion):
            found = self._subscriptions.in_any_words(event)
            if found is None:
                self._do(Answer(event.event.call_id, None))
            else:
                adapter, question = found
        if question is not None:
            opened = OpenQuestion(question, adapter, self._outgoing.pending.register())
            self.open.append(opened)
            self._changed()
            if self._subscriptions.is_subscribed(adapter):
                self._send(opened)
            group.start_soon(self._round_trip, opened, name="question")

    def joined(self, adapter: ApiAdapter) -> None:
        """Send everything that is open for this API, which somebody subscribed to, also what was sent before; questions
        that were never sent are asked where the client is asked now.
        """
        asked = self._subscriptions.asked()
        for opened in self.open:
            if not opened.sent:
                opened.adapter = asked
        for opened in self.open:
            if opened.adapter is adapter:
                self._send(opened)

    def close_all(self) -> None:
        """Close what is open: the turn ends, and nobody waits for an answer any more."""
        for opened in list(self.open):
            opened.closing.cancel()
            self._close(opened)

    async def _round_trip(self, opened: OpenQuestion) -> None:
        """Wait for the answer and let the session have it; then forget the question and let subscribers know."""
        try:
            result = await self._answer(opened)
        finally:
            self._close(opened)
        if not opened.closing.cancel_called:
            self._do(opened.question.to_command(result))

    async def _answer(self, opened: OpenQuestion) -> Json | None:
        """Return the client's result; None where it answered with an error, or where the question was closed."""
        reply = None
        with opened.closing:
            reply = await opened.waiter.wait()
        if reply is None:
            return None
        if reply.error is not None:
            method = opened.question.method
            log.warning("%s was answered with an error, which is a no: %s", method, reply.error[:200])
            return None
        log.debug("%s was answered with %s", opened.question.method, describe(reply.result))
        return reply.result

    def _close(self, opened: OpenQuestion) -> None:
        if opened not in self.open:
            return
        self.open.remove(opened)
        self._outgoing.pending.forget(opened.waiter)
        if opened.sent and opened.question.kind is not QuestionKind.CALL:
            answered = not opened.closing.cancel_called
            for line in opened.adapter.question_closed(opened.waiter.id, answered=answered):
                self._outgoing.send(line)
        self._changed()

    def _send(self, opened: OpenQuestion) -> None:
        opened.sent = True
        self._outgoing.send_request(opened.waiter, opened.question.method, opened.question.params)

    def _do(self, command: Command) -> None:
        try:
            self._session.do(command)
        except CoreError:
            pass  # the conversation has ended meanwhile
