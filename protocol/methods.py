"""THE TABLE: every method of the wire, once. Nothing else in the project spells a method's name.

A row says what goes in and what comes out, and in which order requests are handled: those of scope
CONVERSATION one after another per `conversation_id`, the others on their own. Schemas, documentation and
the router derive from these rows.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from protocol import names
from protocol.base import Json, WireModel
from protocol.records import dataclass
from protocol.v1 import account, approval, config, conversation, initialize, misc, models, turn


class NoParams(WireModel):
    """For methods without parameters; whatever is sent is ignored."""


class Scope(Enum):
    """Which requests wait for one another."""

    NONE = "none"
    CONVERSATION = "conversation"


P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)


@dataclass(frozen=True, slots=True)
class ClientRequest(Generic[P, R]):
    """Something that a client asks. `extension` marks what the reference protocol does not have."""

    method: str
    params: type[P]
    result: type[R]
    doc: str
    scope: Scope = Scope.NONE
    extension: bool = False

    def parse(self, raw: Json) -> P:
        """The parameters as a model; absent and null ones count as `{}`. Raises pydantic's
        `ValidationError`."""
        return self.params.model_validate({} if raw is None or self.params is NoParams else raw)


@dataclass(frozen=True, slots=True)
class ClientNotification:
    """Something that a client says without expecting an answer."""

    method: str
    doc: str


@dataclass(frozen=True, slots=True)
class ServerNotification(Generic[P]):
    """Something that the server says, besides the events of conversations."""

    method: str
    params: type[P]
    doc: str


@dataclass(frozen=True, slots=True)
class ServerRequest(Generic[P, R]):
    """Something that the server asks its client."""

    method: str
    params: type[P]
    result: type[R]
    doc: str
    extension: bool = False


INITIALIZE: Final = ClientRequest(
    names.INITIALIZE,
    initialize.InitializeParams,
    initialize.InitializeResponse,
    "Opens the connection. Must be the first request, and comes once.",
)
NEW_CONVERSATION: Final = ClientRequest(
    "newConversation",
    conversation.NewConversationParams,
    conversation.NewConversationResponse,
    "Begins a conversation. Its events flow once a listener was added; none comes before this answer.",
)
GET_CONVERSATION_SUMMARY: Final = ClientRequest(
    "getConversationSummary",
    conversation.GetConversationSummaryParams,
    conversation.GetConversationSummaryResponse,
    "Describes one stored conversation.",
)
LIST_CONVERSATIONS: Final = ClientRequest(
    "listConversations",
    conversation.ListConversationsParams,
    conversation.ListConversationsResponse,
    "Lists stored conversations, newest first, by pages.",
)
RESUME_CONVERSATION: Final = ClientRequest(
    "resumeConversation",
    conversation.ResumeConversationParams,
    conversation.ResumeConversationResponse,
    "Opens a stored conversation again. `sessionConfigured` is written before the answer.",
)
ARCHIVE_CONVERSATION: Final = ClientRequest(
    "archiveConversation",
    conversation.ArchiveConversationParams,
    conversation.ArchiveConversationResponse,
    "Ends a conversation if it is open and moves its file to the archive.",
    Scope.CONVERSATION,
)
SEND_USER_MESSAGE: Final = ClientRequest(
    "sendUserMessage",
    turn.SendUserMessageParams,
    turn.SendUserMessageResponse,
    "Says something under the conversation's present settings. The turn's events come after the answer.",
    Scope.CONVERSATION,
)
SEND_USER_TURN: Final = ClientRequest(
    "sendUserTurn",
    turn.SendUserTurnParams,
    turn.SendUserTurnResponse,
    "Says something and sets cwd, policies and model. The turn's events come after the answer.",
    Scope.CONVERSATION,
)
INTERRUPT_CONVERSATION: Final = ClientRequest(
    "interruptConversation",
    turn.InterruptConversationParams,
    turn.InterruptConversationResponse,
    "Stops the running turn. The answer comes when the turn has ended, near its `turn_aborted`.",
    Scope.CONVERSATION,
)
ADD_CONVERSATION_LISTENER: Final = ClientRequest(
    "addConversationListener",
    conversation.AddConversationListenerParams,
    conversation.AddConversationSubscriptionResponse,
    "Subscribes to the events of a conversation.",
    Scope.CONVERSATION,
)
REMOVE_CONVERSATION_LISTENER: Final = ClientRequest(
    "removeConversationListener",
    conversation.RemoveConversationListenerParams,
    conversation.RemoveConversationSubscriptionResponse,
    "Ends a subscription.",
)
SUBMIT: Final = ClientRequest(
    "submit",
    turn.SubmitParams,
    turn.SubmitResponse,
    "Submits any operation: compact, undo, review, run a shell command, list tools and so on.",
    Scope.CONVERSATION,
    extension=True,
)
GIT_DIFF_TO_REMOTE: Final = ClientRequest(
    "gitDiffToRemote",
    misc.GitDiffToRemoteParams,
    misc.GitDiffToRemoteResponse,
    "The difference between a working tree and the nearest commit that its remote has.",
)
LOGIN_API_KEY: Final = ClientRequest(
    "loginApiKey",
    account.LoginApiKeyParams,
    account.LoginApiKeyResponse,
    "Stores an API key. `authStatusChange` follows.",
)
LOGIN_CHAT_GPT: Final = ClientRequest(
    "loginChatGpt",
    NoParams,
    account.LoginChatGptResponse,
    "Starts a login through the browser. `loginChatGptComplete` follows when it ended.",
)
CANCEL_LOGIN_CHAT_GPT: Final = ClientRequest(
    "cancelLoginChatGpt",
    account.CancelLoginChatGptParams,
    account.CancelLoginChatGptResponse,
    "Gives up a login through the browser.",
)
LOGOUT_CHAT_GPT: Final = ClientRequest(
    "logoutChatGpt",
    NoParams,
    account.LogoutChatGptResponse,
    "Forgets the stored login, of whatever kind. `authStatusChange` follows.",
)
GET_AUTH_STATUS: Final = ClientRequest(
    "getAuthStatus",
    account.GetAuthStatusParams,
    account.GetAuthStatusResponse,
    "Whether and how the user is logged in; with the token only if asked for.",
)
GET_USER_SAVED_CONFIG: Final = ClientRequest(
    "getUserSavedConfig",
    NoParams,
    config.GetUserSavedConfigResponse,
    "What the user's configuration file says.",
)
SET_DEFAULT_MODEL: Final = ClientRequest(
    "setDefaultModel",
    config.SetDefaultModelParams,
    config.SetDefaultModelResponse,
    "Writes model and effort into the user's configuration file.",
)
GET_USER_AGENT: Final = ClientRequest(
    "getUserAgent", NoParams, initialize.GetUserAgentResponse, "The user agent of the server's requests."
)
USER_INFO: Final = ClientRequest(
    "userInfo",
    NoParams,
    initialize.UserInfoResponse,
    "What the stored login says about the user, unverified.",
)
FUZZY_FILE_SEARCH: Final = ClientRequest(
    "fuzzyFileSearch",
    misc.FuzzyFileSearchParams,
    misc.FuzzyFileSearchResponse,
    "Finds files by a rough spelling of their path, best first.",
)
EXEC_ONE_OFF_COMMAND: Final = ClientRequest(
    "execOneOffCommand",
    misc.ExecOneOffCommandParams,
    misc.ExecOneOffCommandResponse,
    "Runs a command in the sandbox, without a conversation and without asking.",
)
MODEL_LIST: Final = ClientRequest(
    "model/list",
    models.ModelListParams,
    models.ModelListResponse,
    "The models that can be chosen, by pages.",
)

INITIALIZED: Final = ClientNotification("initialized", "The client is ready. Accepted, not required.")

AUTH_STATUS_CHANGE: Final = ServerNotification(
    "authStatusChange",
    account.AuthStatusChangeNotification,
    "After a login or a logout; the method is null when nobody is logged in.",
)
LOGIN_CHAT_GPT_COMPLETE: Final = ServerNotification(
    "loginChatGptComplete",
    account.LoginChatGptCompleteNotification,
    "A login through the browser succeeded, failed or timed out.",
)
SESSION_CONFIGURED: Final = ServerNotification(
    "sessionConfigured",
    conversation.SessionConfiguredNotification,
    "A resumed conversation is ready. Before the answer to `resumeConversation`.",
)

EXEC_COMMAND_APPROVAL: Final = ServerRequest(
    "execCommandApproval",
    approval.ExecCommandApprovalParams,
    approval.ExecCommandApprovalResponse,
    "May a command run? After the event `exec_approval_request` of the same call.",
)
APPLY_PATCH_APPROVAL: Final = ServerRequest(
    "applyPatchApproval",
    approval.ApplyPatchApprovalParams,
    approval.ApplyPatchApprovalResponse,
    "May a patch be applied? After the event `apply_patch_approval_request` of the same call.",
)
ELICITATION_REQUEST: Final = ServerRequest(
    "elicitationRequest",
    approval.ElicitationRequestParams,
    approval.ElicitationRequestResponse,
    "An MCP server asks the user. Only sent to clients with the capability `elicitation`.",
    extension=True,
)

T = TypeVar("T")


def _rows(kind: type[T]) -> tuple[T, ...]:
    """All rows of a kind above, so that none can be forgotten here."""
    return tuple(value for value in globals().values() if isinstance(value, kind))


CLIENT_REQUESTS: Final[Mapping[str, ClientRequest[Json, Json]]] = {
    row.method: row for row in _rows(ClientRequest)
}
CLIENT_NOTIFICATIONS: Final[Mapping[str, ClientNotification]] = {
    row.method: row for row in _rows(ClientNotification)
}
SERVER_NOTIFICATIONS: Final[Mapping[str, ServerNotification[Json]]] = {
    row.method: row for row in _rows(ServerNotification)
}
SERVER_REQUESTS: Final[Mapping[str, ServerRequest[Json, Json]]] = {
    row.method: row for row in _rows(ServerRequest)
}

EVENT_PREFIX: Final = "codex/event/"


def event_method(event_type: str) -> str:
    """The notification's method for an event of a conversation."""
    return EVENT_PREFIX + event_type
