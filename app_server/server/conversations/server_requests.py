"""Open questions to clients in one conversation: each is answered or closed, once.

Every subscriber is asked, in the shapes of its API and under an id of its own connection; a client that joins while a
question is open is asked, too. The first answer that says yes or no becomes a command to the session, and closes the
question for all clients. Any other answer withdraws the question from that client only; if no other client is asked, it
counts as a no. Without clients a question waits.

A call of a client's tool is sent to one client: the one that brought the tools or, if the conversation was opened
again, the first to come that can run tools. The call fails if other clients follow the conversation and that client
does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, assert_never

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.session.session_commands import (
    AnswerElicitation,
    BeginsNoTask,
    ResolveApproval,
    ResolveUserInput,
)
from app_server.engine.support.engine_errors import CoreError
from app_server.server.conversations.adapter import ApiAdapter, OutboundRequest, QuestionKind
from app_server.server.conversations.live_turn import LiveTurn
from app_server.server.conversations.subscriptions import Client, Subscriptions
from app_server.server.rpc.outgoing import Waiter, describe
from app_server_protocol.engine.events import SessionEvent
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallQuestion,
    PatchApprovalQuestion,
    Question,
    ToolCallAnswer,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.policy import ElicitationAction, ReviewDecision
from app_server_protocol.responses import InputText

if TYPE_CHECKING:
    from app_server.engine.session.facade import SessionHandle

log = logging.getLogger(__name__)

TOOL_LEFT = "the client that runs this tool has left"


class Delivery(Struct, eq=False):
    """The copy of a question that one client was sent."""

    adapter: ApiAdapter
    question: OutboundRequest
    waiter: Waiter
    closing: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)


class PendingRequest(Struct, eq=False):
    event: SessionEvent
    asking: Question
    """What the event asks."""
    group: TaskGroup
    """Task group of the tasks that wait for answers."""
    kind: QuestionKind
    words: dict[ApiAdapter, OutboundRequest | None] = msgspec.field(default_factory=dict)
    copies: dict[Client, Delivery] = msgspec.field(default_factory=dict)
    withdrawn: set[Client] = msgspec.field(default_factory=set)
    """Clients whose answer was neither yes nor no."""

    def said(self, adapter: ApiAdapter, live: LiveTurn) -> OutboundRequest | None:
        """Return the question in the shapes of an API; None if it has none for it."""
        if adapter not in self.words:
            found = adapter.question(self.asking, self.event.turn_id, live)
            if found is not None and not any(self.words.values()):
                self.kind = found.kind
            self.words[adapter] = found
        return self.words[adapter]


class ServerRequests:
    """The open questions of one conversation."""

    def __init__(
        self,
        session: SessionHandle,
        subscriptions: Subscriptions,
        tools_of: Client | None,
        changed: Callable[[], None],
    ) -> None:
        """Begin without questions. `tools_of` is the client that brought the clients' tools; None if they were stored
        with the conversation. `changed` is called whenever the number of open questions changes.
        """
        self._session, self._subscriptions = session, subscriptions
        self._tools_of = tools_of
        self._tools_left = False
        """Whether the client that ran the tools has left, and no client that can run them has come since."""
        self._changed = changed
        self.open: list[PendingRequest] = []

    def any_of(self, kind: QuestionKind) -> bool:
        return any(each.kind is kind for each in self.open)

    def ask(self, event: SessionEvent, asking: Question, group: TaskGroup) -> None:
        """Ask the subscribers the question of an event, now or once there are any. The tasks that wait for answers run
        in `group`. A question that no API of the subscribers can ask is answered with no.
        """
        opened, adapters = PendingRequest(event, asking, group, _kind(asking)), self._adapters()
        if not adapters or any(
            opened.said(adapter, self._subscriptions.live_turn) is not None for adapter in adapters
        ):
            if isinstance(asking, McpCallQuestion) and not self._may_be_asked(opened):
                self._do(_refusal(asking))
                return
            self.open.append(opened)
            self._changed()
            self._ask(opened)
            self.fail_lost_calls()
        else:
            self._do(_refusal(asking))

    def joined(self, client: Client, adapter: ApiAdapter) -> None:
        """Send a client that has subscribed to an API all open questions; those that it was asked there before are sent
        again, under the same ids.
        """
        if self._tools_of is None and adapter.runs_tools:
            self._tools_of, self._tools_left = client, False
        for opened in self.open:
            copy = opened.copies.get(client)
            if copy is None:
                opened.withdrawn.discard(client)
            elif copy.adapter is adapter:
                _send(client, copy)
            self._ask(opened)
        self.fail_lost_calls()

    def tools_stay(self, before: ServerRequests, connected: Collection[Client]) -> None:
        """Keep the client that ran the tools before the conversation was reverted, if it is still connected."""
        self._tools_of = before._tools_of if before._tools_of in connected else None

    def leave(self, client: Client) -> None:
        """Withdraw the questions to a client that has left; fail the calls of its tools."""
        if self._tools_of is client:
            self._tools_of, self._tools_left = None, True
        for opened in list(self.open):
            self._take_back(opened, client)
            opened.withdrawn.discard(client)
            self._ask(opened)
            if opened.withdrawn and not opened.copies:
                self._decline(opened)  # all clients that are left have answered neither yes nor no
        self.fail_lost_calls()

    def _may_be_asked(self, opened: PendingRequest) -> bool:
        """Return whether any subscriber can be asked, or there are none and the question waits for one."""
        here = self._subscriptions.reachable()
        return not here or any(any(self._said(opened, client, apis)) for client, apis in here.items())

    def fail_lost_calls(self) -> None:
        """Fail calls of tools that no subscriber can run or approve: their turn would wait forever."""
        for opened in list(self.open):
            asked = opened.asking
            if isinstance(asked, McpCallQuestion) and not opened.copies and not self._may_be_asked(opened):
                self._decline(opened)
            if isinstance(asked, ToolCallQuestion) and not opened.copies and not self._may_run_tools():
                self._close(opened)
                left = ResolveUserInput(asked.call_id, ToolCallAnswer(False, (InputText(text=TOOL_LEFT),)))
                self._do(left if self._tools_left else _refusal(asked))

    def decline_all(self) -> None:
        """Answer all open questions with no."""
        for opened in list(self.open):
            self._decline(opened)

    def close_all(self) -> None:
        """Close all open questions, because the turn ends and their answers are no longer needed."""
        for opened in list(self.open):
            self._close(opened)

    def _ask(self, opened: PendingRequest) -> None:
        """Ask the clients that have to be asked and were not yet."""
        is_call = isinstance(opened.asking, ToolCallQuestion)
        asked = self._subscriptions.reachable() if is_call else self._asked()
        for client, adapters in asked.items():
            if client in opened.copies or client in opened.withdrawn:
                continue
            if is_call and client is not self._tools_of:
                continue
            for adapter, question in self._said(opened, client, adapters):
                copy = opened.copies[client] = Delivery(adapter, question, client.outgoing.pending.register())
                _send(client, copy)
                opened.group.start_soon(self._round_trip, opened, client, copy, name="question")
                break

    def _said(
        self, opened: PendingRequest, client: Client, adapters: list[ApiAdapter]
    ) -> Iterator[tuple[ApiAdapter, OutboundRequest]]:
        """Yield the question in the APIs that have one which this client can answer."""
        for adapter in adapters:
            question = opened.said(adapter, self._subscriptions.live_turn)
            if question is not None and (client.profile.elicitation or not question.needs_elicitation):
                yield adapter, question

    def _asked(self) -> dict[Client, list[ApiAdapter]]:
        """Return the clients to ask, with their adapters: first that of the API that began the client's last turn, then
        those of the other APIs, the newest first. Clients that leave answers to others are asked only if there are no
        others.
        """
        found = self._subscriptions.reachable()
        first = {client: adapters for client, adapters in found.items() if not client.profile.answers_last}
        return first or found

    def _adapters(self) -> list[ApiAdapter]:
        """Return all adapters, first those of the clients to ask."""
        asked = (adapter for adapters in self._asked().values() for adapter in adapters)
        return list(dict.fromkeys((*asked, *self._subscriptions.adapters())))

    def _may_run_tools(self) -> bool:
        """Return whether the client that runs the tools is subscribed, or no client is, so that it is waited for."""
        if self._tools_left:
            return False
        here = self._subscriptions.reachable()
        owners = (adapters for client, adapters in here.items() if self._tools_of in (None, client))
        return not here or any(adapter.runs_tools for adapters in owners for adapter in adapters)

    async def _round_trip(self, opened: PendingRequest, client: Client, copy: Delivery) -> None:
        """Wait for the client's answer. The first valid answer becomes a command to the session, and closes the
        question.
        """
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

    def _take_back(self, opened: PendingRequest, client: Client) -> None:
        """Stop waiting for the answer of this client."""
        copy = opened.copies.pop(client, None)
        if copy is not None:
            client.outgoing.pending.forget(copy.waiter)
            copy.closing.cancel()

    def _decline(self, opened: PendingRequest) -> None:
        self._close(opened)
        self._do(_refusal(opened.asking))

    def _close(self, opened: PendingRequest, answered_by: Client | None = None) -> None:
        self.open.remove(opened)
        for client, copy in list(opened.copies.items()):
            self._take_back(opened, client)
            self._tell_closed(opened, client, copy, answered_by)
        self._changed()

    def _tell_closed(self, opened: PendingRequest, client: Client, copy: Delivery, by: Client | None) -> None:
        """Notify a client that its question is closed, and whether its answer or that of another client closed it."""
        if opened.kind is not QuestionKind.CALL:
            answered, elsewhere = client is by, by is not None and client is not by
            client.send(copy.adapter.question_closed(copy.waiter.id, answered=answered, elsewhere=elsewhere))

    def _do(self, command: BeginsNoTask) -> None:
        try:
            self._session.do(command)
        except CoreError:
            pass  # the session has ended meanwhile


def _kind(asking: Question) -> QuestionKind:
    """Return the kind of a question that no API has converted yet."""
    match asking:
        case ToolCallQuestion():
            return QuestionKind.CALL
        case UserInputQuestion():
            return QuestionKind.INPUT
        case CommandApprovalQuestion() | PatchApprovalQuestion() | ElicitationQuestion() | McpCallQuestion():
            return QuestionKind.APPROVAL
        case _:
            assert_never(asking)


def _send(client: Client, copy: Delivery) -> None:
    client.outgoing.send_request(copy.waiter, copy.question.method, copy.question.params)


def _refusal(asking: Question) -> BeginsNoTask:
    """Return the command that answers a question with no, for any API, whether or not a client was asked."""
    match asking:
        case CommandApprovalQuestion(call_id=id):
            return ResolveApproval(id, ReviewDecision.DENIED)
        case PatchApprovalQuestion(call_id=id):
            return ResolveApproval(id, ReviewDecision.DENIED, tool="apply_patch")
        case ElicitationQuestion(server=server, id=id):
            return AnswerElicitation(server, id, ElicitationAction.DECLINE)
        case ToolCallQuestion(call_id=id) | UserInputQuestion(call_id=id) | McpCallQuestion(call_id=id):
            return ResolveUserInput(id, None)
        case _:
            assert_never(asking)
