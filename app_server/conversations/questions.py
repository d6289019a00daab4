"""Questions to the client that are open in one conversation: each is sent, answered or closed, once.

A question is for one API. It is sent when somebody is subscribed there, and sent again, under the same request id, to
whoever joins while it is open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import msgspec
from msgspec import Struct

from app_server.conversations.adapter import ApiAdapter, ClientQuestion, QuestionKind
from app_server.rpc.outgoing import Outgoing, Waiter, describe
from protocol.base import Json

log = logging.getLogger(__name__)


class OpenQuestion(Struct):
    question: ClientQuestion
    adapter: ApiAdapter
    waiter: Waiter
    sent: bool = False
    closing: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)

    @property
    def request_id(self) -> int:
        return self.waiter.id


class Questions:
    """Of one conversation."""

    def __init__(self, outgoing: Outgoing, changed: Callable[[], None]) -> None:
        """`changed` is called whenever another number of questions is open."""
        self._outgoing, self._changed = outgoing, changed
        self._open: list[OpenQuestion] = []

    @property
    def approvals(self) -> int:
        return self._count(QuestionKind.APPROVAL)

    @property
    def inputs(self) -> int:
        return self._count(QuestionKind.INPUT)

    def _count(self, kind: QuestionKind) -> int:
        return sum(each.question.kind is kind for each in self._open)

    def open(self, question: ClientQuestion, adapter: ApiAdapter, *, send: bool) -> OpenQuestion:
        """Registers it; `send` False: nobody is there to be asked yet."""
        opened = OpenQuestion(question, adapter, self._outgoing.pending.register())
        self._open.append(opened)
        self._changed()
        if send:
            self._send(opened)
        return opened

    def send_to(self, adapter: ApiAdapter) -> None:
        """Somebody joined: everything that is open for this API is sent, also what was sent before."""
        for opened in self._open:
            if opened.adapter is adapter:
                self._send(opened)

    def move(self, adapters: Callable[[], ApiAdapter | None]) -> None:
        """Questions that were never sent go to the API that `adapters` names, where somebody is subscribed now."""
        target = adapters()
        for opened in self._open:
            if not opened.sent and target is not None:
                opened.adapter = target

    async def answer(self, opened: OpenQuestion) -> Json | None:
        """The client's result; None where it answered with an error, or where the question was closed."""
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

    @contextmanager
    def until_answered(self, opened: OpenQuestion) -> Iterator[None]:
        """Forgets the question at the end, and lets subscribers know."""
        try:
            yield
        finally:
            self._close(opened)

    def close_all(self) -> None:
        """The turn ends: nobody waits for an answer any more."""
        for opened in list(self._open):
            opened.closing.cancel()
            self._close(opened)

    def _close(self, opened: OpenQuestion) -> None:
        if opened not in self._open:
            return
        self._open.remove(opened)
        self._outgoing.pending.forget(opened.waiter)
        if opened.sent and opened.question.kind is not QuestionKind.CALL:
            answered = not opened.closing.cancel_called
            for line in opened.adapter.question_closed(opened.request_id, answered=answered):
                self._outgoing.send(line)
        self._changed()

    def _send(self, opened: OpenQuestion) -> None:
        opened.sent = True
        self._outgoing.send_request(opened.waiter, opened.question.method, opened.question.params)
