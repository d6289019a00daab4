"""Questions to clients that are open in one conversation: each is answered or closed, once.

Every subscriber is asked, in the words of its API and under an id of its own connection; who joins while a question is
open is asked, too. The first answer that says yes or no becomes a command to the session, and closes the question for
all. An answer that says nothing takes it back from that client only; from the last that was asked it is a no. Without
clients a question waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.conversations.adapter import ApiAdapter, ClientQuestion, QuestionKind
from app_server.conversations.subscriptions import Client, Subscriptions
from app_server.core.errors import CoreError
from app_server.core.session.commands import Answer, Command
from app_server.rpc.outgoing import Waiter, describe
from protocol.engine.events import SessionEvent, ToolQuestion
from protocol.engine.questions import ToolCallAnswer, ToolCallQuestion, UserInputQuestion
from protocol.responses import InputText

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle

log = logging.getLogger(__name__)

TOOL_LEFT = "the client that runs this tool has left"


class Copy(Struct, eq=False):
    """A question as one client was asked."""

    adapter: ApiAdapter
    question: ClientQuestion
    waiter: Waiter
    closing: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)


class OpenQuestion(Struct, eq=False):
    event: SessionEvent
    group: TaskGroup
    """Waits for the answers."""
    kind: QuestionKind
    words: dict[ApiAdapter, ClientQuestion | None] = msgspec.field(default_factory=dict)
    copies: dict[Client, Copy] = msgspec.field(default_factory=dict)
    withdrawn: set[Client] = msgspec.field(default_factory=set)
    """Who answered with something that is no answer."""

    def said(self, adapter: ApiAdapter) -> ClientQuestion | None:
        """Return the question in the words of an API, which may have none."""
        if adapter not in self.words:
            found = adapter.question(self.event)
            if found is not None and not any(self.words.values()):
                self.kind = found.kind
            self.words[adapter] = found
        return self.words[adapter]


class Questions:
    """The open questions of one conversation."""

    def __init__(
        self,
        session: SessionHandle,
        subscriptions: Subscriptions,
        tools_of: Client,
        changed: Callable[[], None],
    ) -> None:
        """`tools_of` runs the tools that clients bring; `changed` is called whenever another number is open."""
        self._session, self._subscriptions = session, subscriptions
        self._tools_of: Client | None = tools_of
        self._changed = changed
        self.open: list[OpenQuestion] = []

    def any_of(self, kind: QuestionKind) -> bool:
        return any(each.kind is kind for each in self.open)

    def ask(self, event: SessionEvent, group: TaskGroup) -> None:
        """Ask the subscribers what the event asks, now or once somebody is there. The group waits for the answer."""
        opened, adapters = OpenQuestion(event, group, _kind(event)), list(self._subscriptions.adapters())
        if isinstance(event.event, ToolCallQuestion) and self._tools_of is None:
            self._do(_of_a_tool_that_left(event.event))
        elif not adapters or any(opened.said(adapter) is not None for adapter in adapters):
            self.open.append(opened)
            self._changed()
            self._ask(opened)
        elif isinstance(event.event, ToolQuestion):
            self._do(Answer(event.event.call_id, None))

    def joined(self, client: Client, adapter: ApiAdapter) -> None:
        """Ask a client that subscribed to an API everything that is open; again, under the same id, what it was asked
        there before.
        """
        for opened in self.open:
            copy = opened.copies.get(client)
            if copy is None:
                opened.withdrawn.discard(client)
            elif copy.adapter is adapter:
                _send(client, copy)
            self._ask(opened)

    def leave(self, client: Client) -> None:
        """Forget what a client was asked that has left; fail its tools' calls."""
        if self._tools_of is client:
            self._tools_of = None
        for opened in list(self.open):
            self._take_back(opened, client)
            opened.withdrawn.discard(client)
            asked = opened.event.event
            if isinstance(asked, ToolCallQuestion) and self._tools_of is None:
                self._close(opened)
                self._do(_of_a_tool_that_left(asked))
                continue
            self._ask(opened)
            if opened.withdrawn and not opened.copies:
                self._decline(opened)  # whoever is still there has answered with nothing

    def decline_all(self) -> None:
        """Answer what is open with no."""
        for opened in list(self.open):
            self._decline(opened)

    def close_all(self) -> None:
        """Close what is open: the turn ends, and nobody waits for an answer any more."""
        for opened in list(self.open):
            self._close(opened)

    def _ask(self, opened: OpenQuestion) -> None:
        """Ask who is to be asked and has not been."""
        for client, adapters in self._subscriptions.asked().items():
            if client in opened.copies or client in opened.withdrawn:
                continue
            if isinstance(opened.event.event, ToolCallQuestion) and client is not self._tools_of:
                continue
            for adapter, question in _said(opened, adapters):
                copy = opened.copies[client] = Copy(adapter, question, client.outgoing.pending.register())
                _send(client, copy)
                opened.group.start_soon(self._round_trip, opened, client, copy, name="question")
                break

    async def _round_trip(self, opened: OpenQuestion, client: Client, copy: Copy) -> None:
        """Wait for the client's answer; let the session have the first that is one, and subscribers know."""
        reply = None
        with copy.closing:
            reply = await copy.waiter.wait()
        if reply is None or reply.gone or opened.copies.get(client) is not copy:
            return
        method, result = copy.question.method, reply.result if reply.error is None else None
        log.debug("%s was answered with %s", method, describe(reply.error or result))
        if reply.error is not None or not copy.question.is_answer(result):
            if len(opened.copies) > 1:
                log.warning("%s was answered with nothing that is an answer; others are asked, too", method)
                opened.withdrawn.add(client)
                self._tell_closed(opened, client, copy, client)
                self._take_back(opened, client)
                return
            if reply.error is not None:
                log.warning("%s was answered with an error, which is a no: %s", method, reply.error[:200])
        self._close(opened, client)
        self._do(copy.question.to_command(result))

    def _take_back(self, opened: OpenQuestion, client: Client) -> None:
        """Expect no answer of this client any more."""
        copy = opened.copies.pop(client, None)
        if copy is not None:
            client.outgoing.pending.forget(copy.waiter)
            copy.closing.cancel()

    def _decline(self, opened: OpenQuestion) -> None:
        words = (opened.said(adapter) for adapter in self._subscriptions.adapters())
        question = next((said for said in words if said is not None), None)
        self._close(opened)
        if question is not None:
            self._do(question.to_command(None))

    def _close(self, opened: OpenQuestion, answered_by: Client | None = None) -> None:
        self.open.remove(opened)
        for client, copy in list(opened.copies.items()):
            self._take_back(opened, client)
            self._tell_closed(opened, client, copy, answered_by)
        self._changed()

    def _tell_closed(self, opened: OpenQuestion, client: Client, copy: Copy, by: Client | None) -> None:
        """Tell a client that its question is closed, by which client's answer."""
        if opened.kind is not QuestionKind.CALL:
            answered, elsewhere = client is by, by is not None and client is not by
            client.send(copy.adapter.question_closed(copy.waiter.id, answered=answered, elsewhere=elsewhere))

    def _do(self, command: Command) -> None:
        try:
            self._session.do(command)
        except CoreError:
            pass  # the conversation has ended meanwhile


def _kind(event: SessionEvent) -> QuestionKind:
    """Return what is waited for, for a question that nobody has put into words yet."""
    match event.event:
        case ToolCallQuestion():
            return QuestionKind.CALL
        case UserInputQuestion():
            return QuestionKind.INPUT
        case _:
            return QuestionKind.APPROVAL


def _said(opened: OpenQuestion, adapters: list[ApiAdapter]) -> Iterator[tuple[ApiAdapter, ClientQuestion]]:
    """Yield the APIs that have words for a question."""
    for adapter in adapters:
        if (question := opened.said(adapter)) is not None:
            yield adapter, question


def _send(client: Client, copy: Copy) -> None:
    client.outgoing.send_request(copy.waiter, copy.question.method, copy.question.params)


def _of_a_tool_that_left(call: ToolCallQuestion) -> Answer:
    return Answer(call.call_id, ToolCallAnswer(False, (InputText(text=TOOL_LEFT),)))
