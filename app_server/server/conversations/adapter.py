"""The interface between a live conversation and an API: conversion of events into messages, the questions to clients
and their answers, and notifications of the conversation's status. Pure.

Each API implements `ApiAdapter`, which has no text of its own: it makes messages of an event and the running turn. No
module in this folder imports an API.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum, StrEnum
from typing import Final, Literal, Protocol

from msgspec import Struct

from app_server.engine.session.session_commands import AnswerElicitation, BeginsNoTask, ResolveApproval
from app_server.server.conversations.item_text import TextGrown
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.engine.events import SessionEvent
from app_server_protocol.engine.questions import (
    ApprovalQuestion,
    ElicitationQuestion,
    FileGrant,
    McpCallDecision,
    PatchApprovalQuestion,
    Question,
    RuleAmendment,
)
from app_server_protocol.method_table import AnyServerRequest
from app_server_protocol.policy import ElicitationAction, ReviewDecision


class Activity(StrEnum):
    IDLE = "idle"
    ACTIVE = "active"
    SYSTEM_ERROR = "system_error"
    """Status of a conversation whose last turn has failed, until the next turn begins."""
    NOT_LOADED = "not_loaded"


class ConversationStatus(Struct, frozen=True):
    activity: Activity = Activity.IDLE
    waiting_on_approval: bool = False
    waiting_on_input: bool = False


class OutboundMessage(Struct, frozen=True):
    """One message to clients, without its line end."""

    data: bytes
    method: str = ""
    """Method of a notification that a client may opt out of, else ""."""
    news: object = None
    """Content of the notification, if it is not sent to a client that has this content already."""
    state: Hashable = None
    """Key of the state that the line reports: a client that is behind gets only the last line of each key."""


Message = OutboundMessage | TextGrown
"""What an adapter makes: a whole message, or that clients are to be sent more of a text."""


NO_FIELDS: Final[Json] = {"type": "object", "properties": {}}
"""Schema of an elicitation that asks for yes or no only."""


class QuestionKind(Enum):
    """Kind of answer that the conversation waits for while the question is open."""

    APPROVAL = "approval"
    INPUT = "input"
    """Input of the user."""
    CALL = "call"
    """Call of a tool that the client runs. It is no status of the conversation, and it ends with its item."""


class OutboundRequest(Struct, frozen=True):
    """A request to the client whose answer the engine waits for."""

    method: str
    params: bytes
    to_command: Callable[[Json], BeginsNoTask]
    """Function that makes the command from the client's result, which is None if the client answered with an error."""
    is_answer: Callable[[Json], bool]
    """Function that returns whether a result is an answer: it says yes or no."""
    kind: QuestionKind = QuestionKind.APPROVAL
    needs_elicitation: bool = False
    """Whether the question is sent only to clients that announced that they answer elicitations."""


class ApiAdapter(Protocol):
    """Converts the events of one conversation into the shapes of one API.

    It receives every event since it was made, even while no client is subscribed. All clients that use the API are sent
    its messages.
    """

    needs_identity: bool
    """Whether turns and items have to be stored with their ids from now on."""
    outlasts_clients: bool
    """Whether the adapter is kept without clients, for later ones: it does not belong to one client."""
    runs_tools: bool
    """Whether clients that use the API can run tools for the model."""

    def messages(self, event: SessionEvent, live: LiveTurn, *, raw: bool) -> Sequence[Message]:
        """Convert an event, which `live` has applied, into messages. `raw` says whether a subscriber wants the model's
        items in their original form, too.
        """
        ...

    def snapshot(self, live: LiveTurn) -> Sequence[Message]:
        """Return messages about the running turn and the items that go on, with their content so far, for a client that
        joins.
        """
        ...

    def question(self, asking: Question, turn_id: str | None, live: LiveTurn) -> OutboundRequest | None:
        """Return the request for a question, which is sent after the messages of its event; None if the API has none
        for it.
        """
        ...

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[Message]:
        """Return the messages for a client that was asked. `answered` is False if its answer is no longer needed."""
        ...

    def status_changed(self, status: ConversationStatus) -> Sequence[Message]:
        """Return the messages about a status, which are sent to clients whether they are subscribed or not."""
        ...

    def on_session_replaced(self, *, continues: bool) -> None:
        """Store whether the conversation goes on in another session of this server: then the end of this session is not
        its end.
        """
        ...

    def on_reverted(self) -> Sequence[Message] | None:
        """Return the messages that tell clients that the conversation goes on from an earlier turn; none if the API
        reports this in another way. None if subscriptions to this API end with the session.
        """
        ...


AdapterFactory = Callable[[str], ApiAdapter]
"""Function that makes the adapter of a conversation from its id. The adapter then receives all later events."""


class ApiId(Struct, frozen=True):
    """Identity of an API of a conversation: the key of its adapter and of its subscribers."""

    name: Literal["v1", "v2", "acp"]
    owner: Hashable = None
    """Owner of the adapter if each client has an adapter of its own. None if all clients of the API share one."""


class ConversationApi(Struct, frozen=True):
    """An API with the function that makes its adapter for a conversation."""

    id: ApiId
    new_adapter: AdapterFactory
    """Function that makes the adapter, from the conversation's id."""


def asked(
    row: AnyServerRequest,
    params: JsonSerializable,
    to_command: Callable[[Json], BeginsNoTask],
    is_answer: Callable[[Json], bool],
    kind: QuestionKind = QuestionKind.APPROVAL,
    *,
    needs_elicitation: bool = False,
) -> OutboundRequest:
    """Return a question with the method and the parameters of that row."""
    return OutboundRequest(row.method, params.to_json(), to_command, is_answer, kind, needs_elicitation)


def decide(
    event: ApprovalQuestion,
    decision: ReviewDecision,
    also: RuleAmendment | FileGrant | None = None,
) -> ResolveApproval:
    is_patch = isinstance(event, PatchApprovalQuestion)
    return ResolveApproval(event.call_id, decision, also, "apply_patch" if is_patch else "shell")


def is_elicitation_answer(result: Json) -> bool:
    """Return whether a result is an answer to an elicitation in the format of MCP."""
    match result:
        case {"action": "accept" | "cancel" | "decline"}:
            return True
        case _:
            return False


def decide_call(result: Json) -> McpCallDecision:
    """Parse the answer to the question whether a tool may be called, in the format of MCP. An answer that is neither
    yes nor no declines.
    """
    match result:
        case {"action": "accept", "_meta": {"persist": "session"}}:
            return McpCallDecision.SESSION
        case {"action": "accept", "_meta": {"persist": "always"}}:
            return McpCallDecision.ALWAYS
        case {"action": "accept"}:
            return McpCallDecision.ONCE
        case {"action": "cancel"}:
            return McpCallDecision.CANCELLED
        case _:
            return McpCallDecision.DECLINED


def answer_elicitation(event: ElicitationQuestion, result: Json) -> AnswerElicitation:
    """Convert an answer in the format of MCP, which all APIs use."""
    action, content = ElicitationAction.DECLINE, None
    match result:
        case {"action": "accept", **rest}:
            action, content = ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            action = ElicitationAction.CANCEL
        case _:
            pass
    return AnswerElicitation(event.server, event.id, action, content)
