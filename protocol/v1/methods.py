"""The table of the conversation API: every method of it, once, in the order of the documentation. Nothing else spells
these methods' names.
"""

from typing import Final

from protocol import names
from protocol.table import (
    Api,
    ClientNotification,
    ClientRequest,
    NoParams,
    ServerNotification,
    ServerRequest,
    Table,
    by_method,
)
from protocol.v1 import conversation, setup, turn

_CONVERSATION: Final = "conversationId"
"""What orders requests."""

INITIALIZE: Final = ClientRequest(
    names.INITIALIZE,
    setup.InitializeParams,
    setup.InitializeResponse,
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
    _CONVERSATION,
)
SEND_USER_MESSAGE: Final = ClientRequest(
    "sendUserMessage",
    turn.SendUserMessageParams,
    turn.SendUserMessageResponse,
    "Says something under the conversation's present settings. The turn's events come after the answer.",
    _CONVERSATION,
)
SEND_USER_TURN: Final = ClientRequest(
    "sendUserTurn",
    turn.SendUserTurnParams,
    turn.SendUserTurnResponse,
    "Says something and sets cwd, policies and model. The turn's events come after the answer.",
    _CONVERSATION,
)
INTERRUPT_CONVERSATION: Final = ClientRequest(
    "interruptConversation",
    turn.InterruptConversationParams,
    turn.InterruptConversationResponse,
    "Stops the running turn. The answer comes when the turn has ended, near its `turn_aborted`.",
    _CONVERSATION,
)
ADD_CONVERSATION_LISTENER: Final = ClientRequest(
    "addConversationListener",
    conversation.AddConversationListenerParams,
    conversation.AddConversationSubscriptionResponse,
    "Subscribes to the events of a conversation.",
    _CONVERSATION,
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
    _CONVERSATION,
    extension=True,
)
GIT_DIFF_TO_REMOTE: Final = ClientRequest(
    "gitDiffToRemote",
    setup.GitDiffToRemoteParams,
    setup.GitDiffToRemoteResponse,
    "The difference between a working tree and the nearest commit that its remote has.",
)
LOGIN_API_KEY: Final = ClientRequest(
    "loginApiKey",
    setup.LoginApiKeyParams,
    setup.LoginApiKeyResponse,
    "Stores an API key. `authStatusChange` follows.",
)
LOGIN_CHAT_GPT: Final = ClientRequest(
    "loginChatGpt",
    NoParams,
    setup.LoginChatGptResponse,
    "Starts a login through the browser. `loginChatGptComplete` follows when it ended.",
)
CANCEL_LOGIN_CHAT_GPT: Final = ClientRequest(
    "cancelLoginChatGpt",
    setup.CancelLoginChatGptParams,
    setup.CancelLoginChatGptResponse,
    "Gives up a login through the browser.",
)
LOGOUT_CHAT_GPT: Final = ClientRequest(
    "logoutChatGpt",
    NoParams,
    setup.LogoutChatGptResponse,
    "Forgets the stored login, of whatever kind. `authStatusChange` follows.",
)
GET_AUTH_STATUS: Final = ClientRequest(
    "getAuthStatus",
    setup.GetAuthStatusParams,
    setup.GetAuthStatusResponse,
    "Whether and how the user is logged in; with the token only if asked for.",
)
GET_USER_SAVED_CONFIG: Final = ClientRequest(
    "getUserSavedConfig",
    NoParams,
    setup.GetUserSavedConfigResponse,
    "What the user's configuration file says.",
)
SET_DEFAULT_MODEL: Final = ClientRequest(
    "setDefaultModel",
    setup.SetDefaultModelParams,
    setup.SetDefaultModelResponse,
    "Writes model and effort into the user's configuration file.",
)
GET_USER_AGENT: Final = ClientRequest(
    "getUserAgent", NoParams, setup.GetUserAgentResponse, "The user agent of the server's requests."
)
USER_INFO: Final = ClientRequest(
    "userInfo",
    NoParams,
    setup.UserInfoResponse,
    "What the stored login says about the user, unverified.",
)
FUZZY_FILE_SEARCH: Final = ClientRequest(
    "fuzzyFileSearch",
    setup.FuzzyFileSearchParams,
    setup.FuzzyFileSearchResponse,
    "Finds files by a rough spelling of their path, best first.",
)
EXEC_ONE_OFF_COMMAND: Final = ClientRequest(
    "execOneOffCommand",
    setup.ExecOneOffCommandParams,
    setup.ExecOneOffCommandResponse,
    "Runs a command in the sandbox, without a conversation and without asking.",
)
MODEL_LIST: Final = ClientRequest(
    "model/list",
    setup.ModelListParams,
    setup.ModelListResponse,
    "The models that can be chosen, by pages.",
)

INITIALIZED: Final = ClientNotification(names.INITIALIZED, "The client is ready. Accepted, not required.")

AUTH_STATUS_CHANGE: Final = ServerNotification(
    "authStatusChange",
    setup.AuthStatusChangeNotification,
    "After a login or a logout; the method is null when nobody is logged in.",
)
LOGIN_CHAT_GPT_COMPLETE: Final = ServerNotification(
    "loginChatGptComplete",
    setup.LoginChatGptCompleteNotification,
    "A login through the browser succeeded, failed or timed out.",
)
SESSION_CONFIGURED: Final = ServerNotification(
    "sessionConfigured",
    conversation.SessionConfiguredNotification,
    "A resumed conversation is ready. Before the answer to `resumeConversation`.",
)

EXEC_COMMAND_APPROVAL: Final = ServerRequest(
    "execCommandApproval",
    turn.ExecCommandApprovalParams,
    turn.ExecCommandApprovalResponse,
    "May a command run? After the event `exec_approval_request` of the same call.",
)
APPLY_PATCH_APPROVAL: Final = ServerRequest(
    "applyPatchApproval",
    turn.ApplyPatchApprovalParams,
    turn.ApplyPatchApprovalResponse,
    "May a patch be applied? After the event `apply_patch_approval_request` of the same call.",
)
ELICITATION_REQUEST: Final = ServerRequest(
    "elicitationRequest",
    turn.ElicitationRequestParams,
    turn.ElicitationRequestResponse,
    "An MCP server asks the user. Only sent to clients with the capability `elicitation`.",
    extension=True,
)

_ROWS: Final = tuple(vars().values())

TABLE: Final = Table(
    api=Api.V1,
    client_requests=by_method(row for row in _ROWS if isinstance(row, ClientRequest)),
    client_notifications=by_method((INITIALIZED,)),
    server_notifications=by_method(row for row in _ROWS if isinstance(row, ServerNotification)),
    server_requests=by_method(row for row in _ROWS if isinstance(row, ServerRequest)),
)

EVENT_PREFIX: Final = "codex/event/"


def event_method(event_type: str) -> str:
    """Return the notification's method for an event of a conversation."""
    return EVENT_PREFIX + event_type
