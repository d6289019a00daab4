"""What a live conversation knows of an API: how events become lines, and which of them are questions to the user, with
what all APIs have in common of their answers; and what it tells an API about itself beside its events: its status.
Pure.

Each API implements `ApiAdapter`. Nothing in this folder imports one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum, StrEnum
from typing import Final, Literal, Protocol

from msgspec import Struct

from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.session.commands import AnswerElicitation, Command, Decide
from app_server.rpc.backlog import TextPart
from app_server_protocol.engine.events import SessionEvent
from app_server_protocol.engine.questions import AllowFiles, KeepRule, McpCallDecision
from app_server_protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from app_server_protocol.events.tools import ElicitationRequestEvent
from app_server_protocol.policy import ElicitationAction, ReviewDecision
from app_server_protocol.structs import Json, Written
from app_server_protocol.table import AnyServerRequest


class Activity(StrEnum):
    IDLE = "idle"
    ACTIVE = "active"
    SYSTEM_ERROR = "system_error"
    """The last turn failed; stays so until the next one begins."""
    NOT_LOADED = "not_loaded"


class ConversationStatus(Struct, frozen=True):
    activity: Activity = Activity.IDLE
    waiting_on_approval: bool = False
    waiting_on_input: bool = False


class ClientLine(Struct, frozen=True):
    """One message to clients, without its line end."""

    data: bytes
    method: str = ""
    """Of a notification that a client may do without."""
    news: object = None
    """What it says, where a client that knows so already is not told again."""
    part: TextPart | None = None
    """The piece of a text that it carries: a client that is behind gets what it missed of that text at once."""
    state: Hashable = None
    """What it says the state of: for a client that is behind only the last such message counts."""


NO_FIELDS: Final[Json] = {"type": "object", "properties": {}}
"""Schema of a question that wants yes or no alone."""


class QuestionKind(Enum):
    """Kind of answer that the thread waits for while the question is open."""

    APPROVAL = "approval"
    INPUT = "input"
    """Of the user."""
    CALL = "call"
    """The client does something; that is no state of the thread, and its end is that of the item."""


class ClientQuestion(Struct, frozen=True):
    """A request to the client, whose answer the engine waits for."""

    method: str
    params: bytes
    to_command: Callable[[Json], Command]
    """Makes the command that carries the client's result, which is None where it answered with an error."""
    is_answer: Callable[[Json], bool]
    """Tells a result that says yes or no from one that says nothing."""
    kind: QuestionKind = QuestionKind.APPROVAL
    needs_elicitation: bool = False
    """Whether only a client that announced that it answers elicitations can be asked."""


class ApiAdapter(Protocol):
    """One conversation in the words of one API. Keeps what the API needs to know of earlier events.

    It is handed every event from its making on, also while nobody is subscribed. All clients that speak the API are
    sent its lines.
    """

    needs_identity: bool
    """Whether turns and items have to be stored with their ids from now on."""
    outlasts_clients: bool
    """Whether it goes on without any client, for those that come: it does not belong to one."""
    runs_tools: bool
    """Whether clients that speak it can run tools for the model."""

    def lines(self, event: SessionEvent, *, subscribed: bool, raw: bool) -> Sequence[ClientLine]:
        """Convert an event into messages. `raw`: a subscriber wants the model's items as they came, too."""
        ...

    def question(self, event: SessionEvent) -> ClientQuestion | None:
        """Return what the client is asked after the lines of `event`, a `Question`, if the API has words for it."""
        ...

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[ClientLine]:
        """Tell a client that was asked that it has answered, or needs not answer any more (`answered` False)."""
        ...

    def status_changed(self, status: ConversationStatus) -> Sequence[ClientLine]:
        """Tell clients of a status, whether they are subscribed or not."""
        ...

    def continue_elsewhere(self, *, continues: bool) -> None:
        """Note whether the conversation goes on in another session here: then the end of this one is not its end."""
        ...

    def taken_back(self) -> Sequence[ClientLine] | None:
        """Tell clients that the conversation goes on from an earlier turn, where this is not told otherwise. None:
        subscriptions to this API end with the session.
        """
        ...


AdapterFactory = Callable[[str, ItemIds], ApiAdapter]
"""Makes the adapter of the conversation with that id, whose items that have ended have these ids; the adapter is handed
what goes on, and from then on everything.
"""


class ApiId(Struct, frozen=True):
    """Identity of an API of a conversation: the key of its adapter and of its subscribers."""

    name: Literal["v1", "v2", "acp"]
    owner: Hashable = None
    """Owner of the adapter where each client has one of its own. None if all clients of the API share one."""


class ConversationApi(Struct, frozen=True):
    """An API with the function that makes its adapter for a conversation."""

    id: ApiId
    make_adapter: AdapterFactory
    """Called with the conversation's id and the item ids in use."""


def asked(
    row: AnyServerRequest,
    params: Written,
    to_command: Callable[[Json], Command],
    is_answer: Callable[[Json], bool],
    kind: QuestionKind = QuestionKind.APPROVAL,
    *,
    needs_elicitation: bool = False,
) -> ClientQuestion:
    """Return a question as the request of that row."""
    return ClientQuestion(row.method, params.to_json(), to_command, is_answer, kind, needs_elicitation)


def decide(
    event: ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent,
    decision: ReviewDecision,
    also: KeepRule | AllowFiles | None = None,
) -> Decide:
    is_patch = isinstance(event, ApplyPatchApprovalRequestEvent)
    return Decide(event.call_id, decision, also, "apply_patch" if is_patch else "shell")


def is_elicitation_answer(result: Json) -> bool:
    """Tell whether a result says in the words of MCP what becomes of a question."""
    match result:
        case {"action": "accept" | "cancel" | "decline"}:
            return True
        case _:
            return False


def decide_call(result: Json) -> McpCallDecision:
    """Read the answer to whether a tool may be called, in the words of MCP. What says neither yes nor no declines."""
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


def answer_elicitation(event: ElicitationRequestEvent, result: Json) -> AnswerElicitation:
    """Read an answer in the words of MCP, which all APIs use."""
    action, content = ElicitationAction.DECLINE, None
    match result:
        case {"action": "accept", **rest}:
            action, content = ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            action = ElicitationAction.CANCEL
        case _:
            pass
    return AnswerElicitation(event.server_name, event.id, action, content)
